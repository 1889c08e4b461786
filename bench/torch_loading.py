#!/usr/bin/env python3
"""Loading safetensors files to a GPU, compared with the package safetensors, plain copies and transformers in the same run.

usage: torch_loading.py [--gib N] [--rounds N] [--folder DIR] [--bin FOLDER] [--no-transformers]

Files are in the page cache. Every measurement is a process of its own with CUDA started; the clock runs from the call until the
tensors can be used. The first load reads the file, a second process shares it. Starts a gshmd of its own.
Exit status: 0 if all ran, whatever the figures; 1 after a failure; 77 if the machine lacks something.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import gshmd  # noqa: E402


def start_cuda():
    import torch

    torch.ones(1, device="cuda:0").sum().item()
    return torch


def used_on_gpu(torch):
    free, total = torch.cuda.mem_get_info()
    return total - free


class Clock:
    def __init__(self, torch):
        self.torch = torch
        torch.cuda.synchronize()
        self.begin = time.perf_counter()

    def seconds(self):
        self.torch.cuda.synchronize()
        return time.perf_counter() - self.begin


# ---- measurements, each in a process of its own ----
def make_file(path, tensors, kib):
    """Random bytes: nothing can skip them."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    save_file({f"layers.{i}.weight": torch.randint(-128, 127, (int(kib) * 1024 // 128, 128), dtype=torch.int8).view(torch.bfloat16)
               for i in range(int(tensors))}, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return {}


def by_safetensors(path):
    torch = start_cuda()
    import safetensors
    from safetensors.torch import load_file

    clock = Clock(torch)
    tensors = load_file(path, device="cuda:0")
    return {"seconds": clock.seconds(), "bytes": sum(one.nbytes for one in tensors.values()), "version": safetensors.__version__}


def by_gshm(path, stays=""):
    torch = start_cuda()
    import gshm.torch

    gshm.references.default_client().ping()
    before = used_on_gpu(torch)
    clock = Clock(torch)
    parts = gshm.torch.loading.load_torch_parts(path, "cuda:0", progress=False)
    tensors = {}
    for part in parts:
        tensors.update(gshm.torch.views.views(part.object, part.table.tensors))
    result = {"seconds": clock.seconds(), "bytes": sum(one.nbytes for one in tensors.values()), "count": len(tensors),
              "read": sum(part.read_bytes for part in parts), "more": used_on_gpu(torch) - before}
    first = next(iter(tensors.values()))
    result["sum"] = int(first.view(torch.int8).long().sum())
    if stays:
        print(json.dumps(result), flush=True)
        sys.stdin.read()
        os._exit(0)
    return result


def by_pinned_copy(gib):
    torch = start_cuda()
    piece = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(int(gib) << 30, dtype=torch.uint8, device="cuda:0")
    clock = Clock(torch)
    for begin in range(0, target.numel(), piece.numel()):
        target[begin : begin + piece.numel()].copy_(piece, non_blocking=True)
    return {"seconds": clock.seconds(), "bytes": target.numel()}


def make_model(path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=22, num_attention_heads=16,
                         num_key_value_heads=16, vocab_size=32000, dtype="bfloat16")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda:0"):
        model = LlamaForCausalLM(config)
    model.save_pretrained(path)
    return {"bytes": sum(one.nbytes for one in model.parameters())}


def logits(torch, model):
    with torch.no_grad():
        return float(model(torch.arange(16, device="cuda:0")[None]).logits.float().abs().sum())


def by_transformers(path):
    torch = start_cuda()
    import transformers

    kind = transformers.LlamaForCausalLM
    clock = Clock(torch)
    model = kind.from_pretrained(path, dtype="auto", device_map={"": "cuda:0"})
    return {"seconds": clock.seconds(), "logits": logits(torch, model), "version": transformers.__version__}


def by_gshm_transformers(path):
    torch = start_cuda()
    import transformers

    import gshm.transformers

    gshm.references.default_client().ping()
    kind = transformers.LlamaForCausalLM
    before = used_on_gpu(torch)
    clock = Clock(torch)
    model = gshm.transformers.from_pretrained(kind, path, device="cuda:0", progress=False)
    seconds = clock.seconds()
    more = used_on_gpu(torch) - before
    return {"seconds": seconds, "more": more, "logits": logits(torch, model)}


def by_patch(path):
    torch = start_cuda()
    import transformers

    import gshm

    gshm.patch()
    kind = transformers.LlamaForCausalLM
    clock = Clock(torch)
    model = kind.from_pretrained(path, dtype="auto", device_map={"": "cuda:0"})
    return {"seconds": clock.seconds(), "logits": logits(torch, model)}


# ---- the run ----
def child(directory, programs, function, *arguments, wait=True, script=__file__):
    name = getattr(function, "__name__", function)
    command = [sys.executable, script, "--child", name, *map(str, arguments)]
    environment = {**os.environ, "GSHM_DIR": str(directory), "PYTHONPATH": str(ROOT / "python"),
                   "GSHM_LIBRARY": str(programs.parent / "lib" / "libgshm.so.0")}
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
                               env=environment)
    if not wait:
        return started
    out, err = started.communicate()
    if started.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{out}{err}")
    return json.loads(out.splitlines()[-1])


def rate(results):
    return statistics.median(one["bytes"] / one["seconds"] / 1e9 for one in results)


def middle(results):
    return statistics.median(one["seconds"] for one in results)


def measure(arguments, programs, work):
    gshm = programs / "gshm"
    directory = work / "run"

    def run(function, *rest, **more):
        return child(directory, programs, function, *rest, **more)

    def unload():
        subprocess.run([gshm, "--dir", directory, "rm", "-r", f"loaded-{os.getuid()}"], capture_output=True)

    large, many = work / "large.safetensors", work / "many.safetensors"
    run(make_file, large, 300, arguments.gib * (1 << 20) // 300)
    run(make_file, many, 3000, 64)
    subprocess.run(["cat", large, many], stdout=subprocess.DEVNULL)
    ours, theirs, plain = [], [], []
    for _ in range(arguments.rounds):
        plain.append(run(by_pinned_copy, arguments.gib))
        theirs.append(run(by_safetensors, large))
        unload()
        ours.append(run(by_gshm, large))
    print(f"{ours[0]['bytes'] / 2**30:.1f} GiB of 300 tensors in the page cache, medians of {arguments.rounds}:")
    print(f"  gshm.torch.load {rate(ours):.1f} GB/s; safetensors {theirs[0]['version']} load_file {rate(theirs):.1f} GB/s: "
          f"{rate(ours) / rate(theirs):.1f} x (target 5); pinned copy {rate(plain):.1f} GB/s: {rate(ours) / rate(plain):.2f} x "
          f"(target 0.75)", flush=True)
    seconds = [run(by_gshm, large) for _ in range(arguments.rounds)]
    run(by_gshm, many)
    thousands = [run(by_gshm, many) for _ in range(arguments.rounds)]
    if any(one["read"] for one in seconds + thousands) or any(one["sum"] != ours[0]["sum"] for one in seconds):
        raise RuntimeError("a second process has read the file, or other bytes")
    print(f"  a second process: 300 tensors {middle(seconds) * 1e3:.1f} ms (target 10), 3,000 {middle(thousands) * 1e3:.1f} ms "
          f"(target 60); {max(one['more'] for one in seconds) / 2**20:.0f} MiB more on the GPU", flush=True)
    eight = [run(by_gshm, large, "stays", wait=False) for _ in range(8)]
    for one in eight:
        one.stdout.readline()
    text = subprocess.run([gshm, "--dir", directory, "df"], capture_output=True, text=True).stdout
    for one in eight:
        one.stdin.close()
        one.wait()
    print("  with 8 processes:\n    " + text.strip().replace("\n", "\n    "), flush=True)
    unload()
    if arguments.no_transformers:
        return
    model = work / "model"
    size = run(make_model, model)["bytes"]
    subprocess.run(f"cat '{model}'/* >/dev/null", shell=True)
    stock = [run(by_transformers, model) for _ in range(arguments.rounds)]
    first = run(by_gshm_transformers, model)
    shared = [run(by_gshm_transformers, model) for _ in range(arguments.rounds)]
    patched = [run(by_patch, model) for _ in range(arguments.rounds)]
    print(f"transformers {stock[0]['version']}, a model of {size / 2**30:.1f} GiB: stock {middle(stock):.2f} s; gshm first "
          f"{first['seconds']:.2f} s, second process {middle(shared):.3f} s: {middle(stock) / middle(shared):.1f} x (target 20), "
          f"{max(one['more'] for one in shared) / 2**20:.0f} MiB more on the GPU; gshm.patch() {middle(patched):.2f} s")
    if len({one["logits"] for one in [*stock, first, *shared, *patched]}) != 1:
        raise RuntimeError(f"other results: {[one['logits'] for one in [*stock, first, *shared, *patched]]}")


def with_gshmd(arguments, measure):
    """measure(programs, work) with a gshmd in work/run."""
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not torch.cuda.is_available():
        print("skipped: torch finds no GPU")
        return 77
    programs = gshmd.find_programs(ROOT, arguments.bin)
    if programs is None:
        print("skipped: there is no gshmd; --bin FOLDER")
        return 77
    try:
        with gshmd.running(programs, folder=arguments.folder) as daemon:
            measure(programs, daemon.work)
        return 0
    except gshmd.NotStarted as error:
        print(f"gshmd does not start:\n{error}")
        return 1
    except RuntimeError as error:
        print(f"FAIL: {error}")
        return 1


def main():
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(globals()[sys.argv[2]](*sys.argv[3:])), flush=True)
        os._exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--bin")
    parser.add_argument("--no-transformers", action="store_true")
    arguments = parser.parse_args()
    return with_gshmd(arguments, lambda programs, work: measure(arguments, programs, work))


if __name__ == "__main__":
    sys.exit(main())
