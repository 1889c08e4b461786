#!/usr/bin/env python3
"""The Python package on a GPU: arrays in torch, CuPy, JAX and NumPy, in several processes.

usage: python_test.py [BUNDLE]

Starts a gshmd of its own. Prints a line for each part, then PASS, SKIP with the reason, or FAIL; exit status 0, 77 or 1. Parts whose
package is not installed are skipped. GSHM_BIN is the folder of gshmd (default: bin or build/bin of BUNDLE).
"""
import gc
import multiprocessing
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
         "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"]  # fmt: skip


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def in_torch(gshm, c):
    import torch

    with c.create("t/kv", shape=(1024, 128), dtype="bfloat16", device="cuda:0") as b:
        torch.from_dlpack(b).fill_(7)
    seen = torch.from_dlpack(c.open("t/kv", wait=5.0))
    check(seen.shape == (1024, 128) and seen.dtype == torch.bfloat16 and seen.is_cuda, f"another tensor: {seen.dtype}")
    check(bool((seen == 7).all()), "other numbers")
    check(c.open("t/kv").ptr == seen.data_ptr(), "torch has made a copy")
    for name in TYPES:
        kind = getattr(torch, name, None)
        if kind is None:
            continue
        with c.create("t/" + name, shape=(3, 5), dtype=name, device="cuda:0") as b:
            b.fill(1)
            made = b.torch()
            check(made.dtype == kind and made.shape == (3, 5), f"{name} became {made.dtype} {tuple(made.shape)}")
            made.view(torch.uint8).fill_(1)
        check(c.open("t/" + name).tobytes() == b"\x01" * (15 * kind.itemsize), f"{name}: other bytes")
    # A writer on a stream of its own, with a fence, and a reader on another.
    side = torch.cuda.Stream()
    o = c.create("t/fenced", shape=(1 << 22,), dtype="float32", device="cuda:0", keep=True)
    fence = o.fence(write=True)
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        torch.from_dlpack(o).fill_(3)
        fence.publish(stream=side.cuda_stream)
    with torch.cuda.stream(torch.cuda.Stream()):
        check(bool((torch.from_dlpack(o) == 3).all()), "the reader did not wait for the fence")
    return f"torch {torch.__version__}"


def in_cupy(gshm, c):
    import cupy

    with c.create("cupy/a", shape=(64, 64), dtype="float32", device="cuda:0") as b:
        cupy.from_dlpack(b)[...] = cupy.arange(4096, dtype="float32").reshape(64, 64)
    seen = cupy.asarray(c.open("cupy/a"))
    check(float(seen.sum()) == 4095 * 2048, "CuPy reads other numbers")
    check(seen.data.ptr == c.open("cupy/a").ptr, "CuPy has made a copy")
    try:
        import torch
    except ImportError:
        return f"CuPy {cupy.__version__}"
    check(float(torch.from_dlpack(c.open("cupy/a")).sum()) == 4095 * 2048, "torch reads other numbers than CuPy wrote")
    return f"CuPy {cupy.__version__}, read by torch"


def in_jax(gshm, c):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    with c.create("jax/a", shape=(128,), dtype="float32", device="cuda:0") as b:
        b.write(bytes(512))
    seen = jax.dlpack.from_dlpack(c.open("jax/a"))
    check(seen.shape == (128,) and float(seen.sum()) == 0, "JAX reads other numbers")
    where = str(next(iter(seen.devices())))
    return f"JAX {jax.__version__} on {where}"


def in_numpy(gshm, c):
    import numpy

    with c.create("numpy/a", shape=(100,), dtype="int64", device="host") as b:
        b.numpy()[...] = numpy.arange(100)
    seen = numpy.from_dlpack(c.open("numpy/a"))
    check(int(seen.sum()) == 4950 and not seen.flags.writeable, "NumPy reads other numbers, or may write")
    return f"NumPy {numpy.__version__}"


def reads_from(queue, answers):
    import torch

    for one in iter(queue.get, None):
        answers.put(float(torch.from_dlpack(one).sum()))


def between_processes(gshm, c):
    with c.create("queue/a", shape=(1000,), dtype="float32", device="cuda:0") as b:
        import torch

        torch.from_dlpack(b).fill_(2)
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=reads_from, args=(queue, answers))
    child.start()
    queue.put(c.open("queue/a"))
    check(answers.get(timeout=100) == 2000, "the other process reads other numbers")
    queue.put(None)
    child.join()
    return "an object through a queue"


def figures(gshm, c):
    import torch

    o = c.open("t/kv")
    torch.from_dlpack(o)
    times = []
    for _ in range(2000):
        begin = time.perf_counter()
        torch.from_dlpack(o)
        times.append(time.perf_counter() - begin)
    files = len(os.listdir("/proc/self/fd"))
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    for i in range(10_000):
        torch.from_dlpack(c.open("t/kv"))
        if i == 1000:
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    gc.collect()
    more = (int(pathlib.Path("/proc/self/statm").read_text().split()[1]) - pages) * 4096
    del o
    check(len(os.listdir("/proc/self/fd")) == files, "descriptors leak")
    check(sum(one.leases for one in c.holders("t/kv")) == 0, "leases leak")
    check(more < 4 << 20, f"memory leaks: {more} bytes")
    return f"from_dlpack {statistics.median(times) * 1e6:.1f} us; 10,000 opens: {more} bytes more"


PARTS = [in_torch, in_cupy, in_jax, in_numpy, between_processes, figures]


def run(directory):
    import gshm

    try:
        with gshm.connect(directory, timeout=30) as c:
            for part in PARTS:
                try:
                    said = part(gshm, c)
                except ImportError as error:
                    said = f"skipped: {error}"
                print(f"  {part.__name__}: {said}", flush=True)
    except (AssertionError, gshm.Error) as error:
        print(f"FAIL: {type(error).__name__}: {error}")
        return 1
    print("PASS: arrays of the Python package on a GPU")
    return 0


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent.parent
    folders = [pathlib.Path(os.environ["GSHM_BIN"])] if os.environ.get("GSHM_BIN") else []
    folders += [root / "bin", root / "build" / "bin"]
    programs = next((folder.resolve() for folder in folders if (folder / "gshmd").exists()), None)
    if programs is None:
        print(f"FAIL: no gshmd below {root}")
        return 1
    os.environ.setdefault("GSHM_LIBRARY", str(programs.parent / "lib" / "libgshm.so.0"))
    os.environ["PYTHONPATH"] = str(root / "python")
    sys.path.insert(0, str(root / "python"))
    work = pathlib.Path(tempfile.mkdtemp(prefix="gshm-python-"))
    daemon = subprocess.Popen([programs / "gshmd", "--dir", work / "run", "-f", "--device", "cuda", "--device", "host:1G"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    try:
        for line in daemon.stdout:
            said += line
            if "is ready at" in line:
                return run(work / "run")
        print(f"SKIP: gshmd does not start here: {said}" if "cuda" in said else f"FAIL: {said}")
        return 77 if "cuda" in said else 1
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
