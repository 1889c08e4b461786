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
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import gshmd

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
         "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"]  # fmt: skip


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def answer(results):
    """Of another process."""
    try:
        return results.get(timeout=100)
    except queue.Empty:
        raise AssertionError("the other process says nothing") from None


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
    reader = c.open("t/fenced")  # the writer's own handle does not wait
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        torch.from_dlpack(o).fill_(3)
        fence.publish(stream=side.cuda_stream)
    with torch.cuda.stream(torch.cuda.Stream()):
        check(bool((torch.from_dlpack(reader) == 3).all()), "the reader did not wait for the fence")
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


def reads_from(objects, answers):
    import torch

    for one in iter(objects.get, None):
        answers.put(float(torch.from_dlpack(one).sum()))


def between_processes(gshm, c):
    with c.create("queue/a", shape=(1000,), dtype="float32", device="cuda:0") as b:
        import torch

        torch.from_dlpack(b).fill_(2)
    context = multiprocessing.get_context("spawn")
    objects, answers = context.Queue(), context.Queue()
    child = context.Process(target=reads_from, args=(objects, answers))
    child.start()
    objects.put(c.open("queue/a"))
    check(answer(answers) == 2000, "the other process reads other numbers")
    objects.put(None)
    child.join()
    return "an object through a queue"


def attaches(directory, answers):
    import torch

    import gshm
    import gshm.torch

    model = small_model(torch).to("meta")
    gshm.torch.attach_module(model, "models/small", client=gshm.connect(directory))
    answers.put(float(model(torch.arange(8, device="cuda:0")).abs().sum()))


def small_model(torch):
    model = torch.nn.Sequential(torch.nn.Embedding(64, 128), torch.nn.Linear(128, 64, bias=False))
    model[1].weight = model[0].weight
    return model


def modules(gshm, c):
    import torch

    import gshm.torch

    model = small_model(torch).to("cuda:0")
    expected = float(model(torch.arange(8, device="cuda:0")).abs().sum())
    gshm.torch.share_module(model, "models/small", client=c)
    check(float(model(torch.arange(8, device="cuda:0")).abs().sum()) == expected, "the shared module computes something else")
    check(model[1].weight is model[0].weight, "tied weights are not tied")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=attaches, args=(os.environ["GSHM_DIR"], answers))
    child.start()
    check(answer(answers) == expected, "the attached module computes something else")
    child.join()
    return "a module in two processes"


def fills_pool(tensors):
    import torch
    import torch.multiprocessing  # its queues

    import gshm.torch

    with gshm.torch.use_pool("pool/kv") as pool:
        tensor = torch.full((1000, 1000), 5.0, device="cuda:0")
    pool.seal()
    tensors.put(tensor)
    tensors.close()
    tensors.join_thread()
    os._exit(0)


def pools(gshm, c):
    import torch.multiprocessing

    import gshm.torch

    context = torch.multiprocessing.get_context("spawn")
    tensors = context.Queue()
    child = context.Process(target=fills_pool, args=(tensors,))
    child.start()
    child.join()
    check(child.exitcode == 0, f"the maker ends with {child.exitcode}")
    tensor = answer(tensors)
    check(float(tensor.sum()) == 5e6, "a tensor of a pool has other numbers in another process")
    return "a pool's tensor through a queue, after its maker is gone"


def fills_beside_expandable_segments(tensors):
    import torch
    import torch.multiprocessing  # its queues

    import gshm
    import gshm.torch

    own = torch.ones(1 << 20, device="cuda:0")  # in a segment that torch can expand
    with gshm.torch.use_pool("pool/expandable") as pool:
        tensor = torch.full((1000, 1000), 6.0, device="cuda:0")
    check(gshm.locate(tensor.data_ptr()).size_bytes >= 4_000_000, "the pool's tensor is not in gshm")
    with gshm.connect().create("expandable/object", shape=(1000,), dtype="float32", device="cuda:0") as made:
        made.torch().copy_(own[:1000] * 3)
    pool.seal()
    tensors.put(tensor)
    tensors.put(gshm.connect().open("expandable/object").torch())
    tensors.close()
    tensors.join_thread()
    os._exit(0)


def sums_beside_expandable_segments(tensors, answers):
    import torch
    import torch.multiprocessing  # noqa: F401

    import gshm.torch  # noqa: F401

    torch.ones(1 << 20, device="cuda:0")
    answers.put([float(tensors.get(timeout=100).sum()) for _ in range(2)])


def expandable_segments(gshm, c):
    """torch cannot send its own tensors then, and memory that torch takes by cuMemCreate() is beside that of gshm."""
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # torch 2.9 has renamed it
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: "expandable_segments:True" for name in names})
    try:
        producer = context.Process(target=fills_beside_expandable_segments, args=(tensors,))
        consumer = context.Process(target=sums_beside_expandable_segments, args=(tensors, answers))
        producer.start()
        producer.join()
        check(producer.exitcode == 0, f"the producer ends with {producer.exitcode}")
        consumer.start()
        check(answer(answers) == [6e6, 3000.0], "tensors have other numbers in another process")
        consumer.join()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return "with them on: a pool's tensor and an object's through a queue, after their maker is gone"


def checkpoints(gshm, c):
    import torch

    import gshm.torch

    weights = torch.full((1 << 26,), 1.0, device="cuda:0")  # 256 MiB
    state = {"model": {"w": weights}, "step": 3}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.safetensors")
        saved = gshm.torch.save(state, "run/last", path=path, client=c)
        weights.zero_()  # on the stream after the copy
        saved.wait()
        back = gshm.torch.load_state("run/last", client=c)
        check(back["step"] == 3 and float(back["model"]["w"].sum()) == 1 << 26, "the state is not that of the call")
        again = gshm.torch.load_file_state(path, "cuda:0", client=c, progress=False)
        check(float(again["model"]["w"].sum()) == 1 << 26, "the file is not the state")
    return "a state that is saved while it changes"


def loads(gshm, c):
    import numpy
    import torch
    from safetensors.torch import load_file, save_file

    import gshm.safetensors
    import gshm.torch

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.safetensors")
        made = {}
        for name in TYPES:
            kind = getattr(torch, name, None)
            if kind is not None:
                made[name] = torch.randint(0, 2, (33, 7), dtype=torch.uint8).repeat(1, kind.itemsize).view(kind)
        save_file(made, path)
        ours, theirs = gshm.torch.load(path, "cuda:0", client=c, progress=False), load_file(path, device="cuda:0")
        check(set(ours) == set(theirs), f"other names: {set(ours) ^ set(theirs)}")
        for name, one in theirs.items():
            seen = ours[name]
            check(seen.dtype == one.dtype and seen.shape == one.shape and seen.is_cuda, f"{name}: {seen.dtype} {seen.shape}")
            check(torch.equal(seen.contiguous().view(torch.uint8), one.view(torch.uint8)), f"{name} has other bytes")
            check(seen.data_ptr() % 256 == 0, f"{name} is not aligned")
        part = gshm.torch.load(path, "cuda:0", client=c, progress=False, slice={"float32": (0, 3, 9)},
                               filter=lambda name: name == "float32")
        check(torch.equal(part["float32"], theirs["float32"][3:9]), "a slice has other numbers")
        with gshm.safetensors.safe_open(path, "pt", device="cuda:0") as file:
            check(torch.equal(file.get_tensor("int64"), theirs["int64"]), "safe_open has other numbers")
        host = gshm.load(path, "host", client=c)
        check(numpy.array_equal(host["int32"].numpy(), made["int32"].numpy()), "NumPy reads other numbers")
    return f"{len(made)} types as safetensors loads them"


def slices(gshm, c):
    import torch

    import gshm.safetensors
    import gshm.safetensors.torch
    import gshm.torch

    whole = torch.arange(4096 * 640, dtype=torch.float32, device="cuda:0").reshape(4096, 640)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "w.safetensors")
        gshm.safetensors.torch.save_file({"w": whole, "b": whole[0].clone()}, path)
        with gshm.safetensors.safe_open(path, "pt", device="cuda:0") as file:
            part = file.get_slice("w")
            for index in (slice(3, 9), (slice(None), slice(100, 300)), -1, (..., 7)):
                mine = part[index]
                check(mine.is_cuda and torch.equal(mine, whole[index]), f"the slice {index} has other numbers")
                mine.zero_()  # a private copy
            check(torch.equal(file.get_tensor("w"), whole), "a slice is not a copy")
        gshm.safetensors.shared(True)
        try:
            with gshm.safetensors.safe_open(path, "pt", device="cuda:0") as file:
                seen = file.get_slice("w")[3:9]
                check(torch.equal(seen, whole[3:9]), "a shared slice has other numbers")
                check(gshm.locate(seen.data_ptr()).size_bytes > 0, "a shared slice is a copy")
        finally:
            gshm.safetensors.shared(False)
        for dimension, begin, end in ((0, 5, 4000), (1, 64, 65), (1, 7, 333)):  # one range; rows that are gathered
            found = gshm.torch.load(path, "cuda:0", client=c, progress=False, slice={"w": (dimension, begin, end)},
                                    filter=lambda name: name == "w")
            expected = whole.narrow(dimension, begin, end - begin)
            check(torch.equal(found["w"], expected), f"the slice {begin} to {end} of dimension {dimension} has other numbers")
            check(found.read_bytes == expected.numel() * 4, f"{found.read_bytes} bytes are read for {expected.numel() * 4}")
    return "slices of safe_open are private, or shared when asked for; those of load read their bytes alone"


def documentation(gshm, c):
    page = ROOT / "docs" / "python.md"
    if not page.exists():
        return "skipped: the page is not here"
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    check(ended.returncode == 0, f"the blocks of {page.name}: {ended.stderr}")
    return f"the blocks of {page.name} run on cuda:0"


def create_and_seal(gshm, c):
    """Against the same calls of the C interface, made by ctypes with their arguments prepared."""
    import ctypes

    from gshm import _abi
    from gshm.attributes import attribute_array

    lib, handle = _abi.lib, c._need().handle
    array, kept = attribute_array({"dtype": "float32", "shape": "32,32"})
    specs = [_abi.CreateSpec(mode=0o600, name=b"bench/c%d" % i, size_bytes=4096, device=b"cuda:0",
                             attributes=ctypes.addressof(array), attribute_count=len(array)) for i in range(1000)]
    made = ctypes.c_void_p()

    def by_c(number):
        if lib.create(handle, ctypes.byref(specs[number]), ctypes.byref(made)) or lib.seal(made):
            raise AssertionError(lib.last_error().decode())
        lib.close(made)

    def by_python(number):
        with c.create(f"bench/p{number}", (32, 32), "float32", device="cuda:0"):
            pass

    times = {by_c: [], by_python: []}
    for number in range(len(specs)):
        for call, found in times.items():
            begin = time.perf_counter()
            call(number)
            found.append(time.perf_counter() - begin)
    del kept
    plain, ours = (statistics.median(found) * 1e6 for found in times.values())
    return f"{ours:.1f} us, the C calls {plain:.1f} us: {ours / plain:.2f} x (target 3)"


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


PARTS = [in_torch, in_cupy, in_jax, in_numpy, between_processes, modules, pools, expandable_segments, checkpoints, loads,
         slices, documentation, create_and_seal, figures]  # fmt: skip


def run(directory):
    import gshm

    os.environ["GSHM_DIR"] = str(directory)
    failed = []
    with gshm.connect(directory, timeout=30) as c:
        for part in PARTS:
            try:
                said = part(gshm, c)
            except ImportError as error:
                said = f"skipped: {error}"
            except Exception as error:  # the other parts tell more
                traceback.print_exc(file=sys.stdout)
                said = f"FAIL: {type(error).__name__}: {error}"
                failed.append(part.__name__)
            print(f"  {part.__name__}: {said}", flush=True)
    if failed:
        print(f"FAIL: {', '.join(failed)}")
        return 1
    print("PASS: arrays of the Python package on a GPU")
    return 0


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    programs = gshmd.find_programs(root)
    if programs is None:
        print(f"FAIL: no gshmd below {root}")
        return 1
    os.environ.setdefault("GSHM_LIBRARY", str(gshmd.library_of(programs)))
    os.environ["PYTHONPATH"] = str(root / "python")
    sys.path.insert(0, str(root / "python"))
    try:
        with gshmd.running(programs, "--device", "cuda", "--device", "host:1G") as daemon:
            return run(daemon.directory)
    except gshmd.NotStarted as error:
        said = str(error)
        print(f"SKIP: gshmd does not start here: {said}" if "cuda" in said else f"FAIL: {said}")
        return 77 if "cuda" in said else 1


if __name__ == "__main__":
    sys.exit(main())
