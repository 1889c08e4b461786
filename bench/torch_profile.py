#!/usr/bin/env python3
"""Where from_pretrained() of transformers spends its time: stock, and gshm in a later process.

usage: torch_profile.py [--layers N] [--folder DIR] [--bin FOLDER] [--lines N] [--logs DIR]

Each measurement is a process of its own with CUDA started, a gshmd of its own and the files in the page cache. For each it prints
 - the seconds of a first and of a second call in the process, without a profiler (what the first one pays once is the difference),
 - the modules that the first call imports, and their time,
 - the time within functions of transformers and gshm: inclusive, with the number of calls, first and second call,
 - cProfile of the first and of the second call, sorted by cumulative and by own time.
Exit status: 0 if all ran; 1 after a failure; 77 if the machine lacks something.
"""
import argparse
import cProfile
import functools
import importlib
import io
import json
import os
import pathlib
import pstats
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_loading  # noqa: E402

# Functions whose inclusive time is told; those that a version does not have are left out.
POINTS = [
    "gshm.torch.loading:load", "gshm.torch.loading:load_torch_parts", "gshm.torch.loading:choose",
    "gshm.torch.loading:daemon_device", "gshm.torch.loading:load_parts", "gshm.torch.loading:views",
    "gshm.references:default_client", "gshm.loads:_part", "gshm:local_devices",
    "transformers.models.auto.configuration_auto:AutoConfig.from_pretrained",
    "transformers.configuration_utils:PreTrainedConfig.from_pretrained",
    "transformers.configuration_utils:PreTrainedConfig.get_config_dict",
    "transformers.generation.configuration_utils:GenerationConfig.from_pretrained",
    "transformers.generation.configuration_utils:GenerationConfig.from_model_config",
    "transformers.modeling_utils:maybe_load_adapters", "transformers.modeling_utils:check_and_set_device_map",
    "transformers.modeling_utils:get_hf_quantizer", "transformers.modeling_utils:_get_resolved_checkpoint_files",
    "transformers.modeling_utils:_get_dtype", "transformers.modeling_utils:_get_device_map",
    "transformers.modeling_utils:get_model_conversion_mapping", "transformers.modeling_utils:caching_allocator_warmup",
    "transformers.modeling_utils:expand_device_map", "transformers.modeling_utils:verify_tp_plan",
    "transformers.modeling_utils:convert_and_load_state_dict_in_model", "transformers.core_model_loading:spawn_materialize",
    "transformers.core_model_loading:rename_source_key", "transformers.core_model_loading:set_param_for_module",
    "transformers.modeling_utils:log_state_dict_report", "transformers.modeling_utils:patch_output_recorders",
    "transformers.modeling_utils:PreTrainedModel._load_pretrained_model",
    "transformers.modeling_utils:PreTrainedModel._finalize_model_loading",
    "transformers.modeling_utils:PreTrainedModel.mark_tied_weights_as_initialized",
    "transformers.modeling_utils:PreTrainedModel._move_missing_keys_from_meta_to_device",
    "transformers.modeling_utils:PreTrainedModel._initialize_missing_keys",
    "transformers.modeling_utils:PreTrainedModel.tie_weights",
    "transformers.modeling_utils:PreTrainedModel._adjust_missing_and_unexpected_keys",
    "transformers.modeling_utils:PreTrainedModel.eval", "transformers.modeling_utils:PreTrainedModel.post_init",
    "transformers.modeling_utils:PreTrainedModel.get_init_context",
    "transformers.models.llama.modeling_llama:LlamaForCausalLM.__init__",
    "transformers.models.llama.modeling_llama:LlamaRotaryEmbedding.__init__",
    "transformers.generation.utils:GenerationMixin.adjust_generation_fn",
    "torch.nn.modules.linear:Linear.__init__", "torch.nn.modules.linear:Linear.reset_parameters",
]  # fmt: skip


class Points:
    """Inclusive seconds and calls of functions."""

    def __init__(self):
        self.seen = {}

    def wrap(self, place):
        module, _, path = place.partition(":")
        try:
            holder = importlib.import_module(module)
            *parents, name = path.split(".")
            for one in parents:
                holder = getattr(holder, one)
            plain = vars(holder)[name]
        except (ImportError, AttributeError, KeyError):
            return
        inner = plain.__func__ if isinstance(plain, (staticmethod, classmethod)) else plain

        @functools.wraps(inner)
        def timed(*arguments, **options):
            begin = time.perf_counter()
            try:
                return inner(*arguments, **options)
            finally:
                seconds, calls = self.seen.get(place, (0.0, 0))
                self.seen[place] = (seconds + time.perf_counter() - begin, calls + 1)

        setattr(holder, name, type(plain)(timed) if isinstance(plain, (staticmethod, classmethod)) else timed)


def prepared(way):
    """The function to measure, with what a program has imported before."""
    torch = torch_loading.start_cuda()
    import transformers

    kind = transformers.LlamaForCausalLM
    if way == "stock":
        return torch, lambda path: kind.from_pretrained(path, dtype="auto", device_map={"": "cuda:0"})
    if way == "bare":  # no weights at all: what every from_pretrained() pays
        def made(path):
            config = kind.config_class.from_pretrained(path)
            with torch.device("meta"):
                return kind(config)

        return torch, made
    if way == "patch":
        import gshm

        gshm.patch()
        return torch, lambda path: kind.from_pretrained(path, dtype="auto", device_map={"": "cuda:0"})
    import gshm.transformers

    gshm.references.default_client().ping()
    return torch, lambda path: gshm.transformers.from_pretrained(kind, path, device="cuda:0", progress=False)


def seconds_of(torch, function, path):
    clock = torch_loading.Clock(torch)
    kept = function(path)
    return clock.seconds(), kept


def plain(way, path):
    torch, function = prepared(way)
    before = set(sys.modules)
    first, kept = seconds_of(torch, function, path)
    imported = sorted(set(sys.modules) - before)
    del kept
    second, _ = seconds_of(torch, function, path)
    return {"first": first, "second": second, "imported": imported}


def imports(way, path):
    """Seconds of the imports of the first call, by module, without those that they import."""
    import builtins

    torch, function = prepared(way)
    stack, own, original = [], {}, builtins.__import__

    def measured(name, *arguments, **options):
        known, begin = len(sys.modules), time.perf_counter()
        stack.append(0.0)
        try:
            return original(name, *arguments, **options)
        finally:
            seconds, inner = time.perf_counter() - begin, stack.pop()
            if stack:
                stack[-1] += seconds
            if len(sys.modules) != known:
                own[name] = own.get(name, 0.0) + seconds - inner

    builtins.__import__ = measured
    try:
        function(path)
    finally:
        builtins.__import__ = original
    return {"imports": sorted(own.items(), key=lambda one: -one[1])[:25], "sum": sum(own.values())}


def points(way, path):
    torch, function = prepared(way)
    if way == "gshm":
        import gshm.torch  # noqa: F401
    found = Points()
    for place in POINTS:
        found.wrap(place)
    results = []
    for _ in range(2):
        found.seen = {}
        seconds, kept = seconds_of(torch, function, path)
        results.append((seconds, dict(found.seen)))
        del kept
    return {"calls": results}


def profiled(way, path, lines, logs):
    torch, function = prepared(way)
    texts = []
    for turn in ("first", "second"):
        profile = cProfile.Profile()
        profile.enable()
        kept = function(path)
        torch.cuda.synchronize()
        profile.disable()
        del kept
        for order in ("cumulative", "tottime"):
            out = io.StringIO()
            pstats.Stats(profile, stream=out).sort_stats(order).print_stats(int(lines))
            texts.append(f"---- cProfile: {way}, {turn} call, by {order}\n" + "\n".join(out.getvalue().splitlines()[6:]))
        if logs:
            profile.dump_stats(os.path.join(logs, f"{way}-{turn}.pstats"))
    return {"text": "\n".join(texts)}


def make_model(path, layers):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=int(layers), num_attention_heads=16,
                         num_key_value_heads=16, vocab_size=32000, dtype="bfloat16")  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda:0"):
        LlamaForCausalLM(config).save_pretrained(path)
    return {}


def report(run, path, arguments):
    ways = ["bare", "stock", "gshm", "patch"]
    for way in ("gshm", "patch"):
        run("plain", way, path)  # the first process of the machine: it reads the file
    for way in ways:
        rounds = [run("plain", way, path) for _ in range(3)]
        print(f"== {way}: first call {' '.join(format(one['first'] * 1e3, '.1f') for one in rounds)} ms, second "
              f"{' '.join(format(one['second'] * 1e3, '.1f') for one in rounds)} ms; {len(rounds[0]['imported'])} modules imported")
        if rounds[0]["imported"]:
            print("   " + " ".join(rounds[0]["imported"][:60]))
        made = run("imports", way, path)
        print(f"   imports {made['sum'] * 1e3:.1f} ms: " + ", ".join(f"{name} {s * 1e3:.1f}" for name, s in made["imports"]))
        for turn, (seconds, seen) in zip(("first", "second"), run("points", way, path)["calls"]):
            print(f"   {turn} call with timers: {seconds * 1e3:.1f} ms")
            for place in POINTS:
                if place in seen:
                    print(f"     {seen[place][0] * 1e3:9.2f} ms {seen[place][1]:6d} x  {place}")
        sys.stdout.flush()
    for way in ways[1:]:
        text = run("profiled", way, path, arguments.lines, arguments.logs or "")["text"]
        print(text)
        if arguments.logs:
            (pathlib.Path(arguments.logs) / f"{way}.txt").write_text(text)


def main():
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(globals()[sys.argv[2]](*sys.argv[3:])), flush=True)
        os._exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=22, help="22: 3 GiB")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--bin")
    parser.add_argument("--lines", type=int, default=45)
    parser.add_argument("--logs", help="a folder for the profiles")
    arguments = parser.parse_args()

    def measure(programs, work):
        def run(function, *rest):
            return torch_loading.child(work / "run", programs, function, *rest, script=__file__)

        path = work / "model"
        run("make_model", path, arguments.layers)
        subprocess.run(f"cat '{path}'/* >/dev/null", shell=True)
        report(run, path, arguments)

    return torch_loading.with_gshmd(arguments, measure)


if __name__ == "__main__":
    sys.exit(main())
