#!/usr/bin/env python3
"""Training steps on memory of gshm, compared with torch's own allocator in the same run.

usage: torch_training.py [--rounds N] [--steps N] [--bin FOLDER] [--only MODE]...

A small transformer of 6 layers, whose kernels are short, with batches of varying length, so that sizes of tensors keep changing. Modes:
  torch      torch's caching allocator
  expandable the same with expandable segments: memory of cuMemCreate(), as gshm's
  mempool    a torch MemPool whose segments come from gshm_malloc
  pluggable  gshm_malloc for each tensor (change_current_allocator)
Each round runs every mode in a process of its own. Figures are medians of the rounds' medians. Starts a gshmd of its own.
Exit status: 0 if all ran, whatever the figures; 1 after a failure; 77 if the machine lacks something.
"""
import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import gshmd  # noqa: E402

MODES = ["torch", "expandable", "mempool", "pluggable"]
LENGTHS = [256, 640, 384, 896, 512, 768, 320, 1024, 448, 960]


def train(mode, library, steps):
    if mode == "expandable":
        os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    use = contextlib.nullcontext()
    if mode in ("mempool", "pluggable"):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "gshm_malloc", "gshm_free")
        if mode == "pluggable":
            torch.cuda.memory.change_current_allocator(allocator)
        else:
            pool = torch.cuda.MemPool(allocator.allocator())
            use = torch.cuda.use_mem_pool(pool)
    torch.manual_seed(7)
    with use:
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True, device="cuda:0",
                                                 dtype=torch.bfloat16)
        model = torch.nn.TransformerEncoder(layer, 6)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        times = []
        warm_up = 3 * len(LENGTHS)  # libraries compile kernels for each new length
        for step in range(steps + warm_up):
            length = LENGTHS[step % len(LENGTHS)]
            batch = torch.randn(4, length, 512, device="cuda:0", dtype=torch.bfloat16)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            loss = model(batch).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            if step >= warm_up:
                times.append(time.perf_counter() - begin)
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"] // len(times) if mode != "pluggable" else 0
    print(statistics.median(times) * 1e3, statistics.mean(times) * 1e3, float(loss), allocations, flush=True)
    os._exit(0)  # without the order in which torch frees at its end


def measure(arguments, daemon):
    results = {mode: [] for mode in arguments.only or MODES}
    for turn in range(arguments.rounds):
        order = list(results)  # each mode is the first, and the last, in some round
        for mode in order[turn % len(order):] + order[: turn % len(order)]:
            figures = results[mode]
            command = [sys.executable, __file__, "--child", mode, str(daemon.library), str(arguments.steps)]
            child = subprocess.run(command, capture_output=True, text=True,
                                   env={**os.environ, "GSHM_DIR": str(daemon.directory)})
            if child.returncode != 0:
                print(f"{mode} failed:\n{child.stdout}{child.stderr}")
                return 1
            figures.append(float(child.stdout.split()[0]))
            print(f"  {mode:10} {child.stdout.strip()}", flush=True)
    base = statistics.median(results.get("torch", [float("nan")]))
    for mode, figures in results.items():
        middle = statistics.median(figures)
        print(f"{mode:10} {middle:7.2f} ms a step ({min(figures):.2f} to {max(figures):.2f}), {middle / base:.3f} x torch's")
    return 0


def main():
    if sys.argv[1:2] == ["--child"]:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--bin")
    parser.add_argument("--only", action="append", choices=MODES)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: there is no torch")
        return 77
    if not torch.cuda.is_available():
        print("skipped: torch finds no GPU")
        return 77
    programs = gshmd.find_programs(ROOT, arguments.bin)
    if programs is None:
        print("skipped: there is no gshmd; --bin FOLDER")
        return 77
    try:
        with gshmd.running(programs) as daemon:
            return measure(arguments, daemon)
    except gshmd.NotStarted as error:
        print(f"gshmd does not start:\n{error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
