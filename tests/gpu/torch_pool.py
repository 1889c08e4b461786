#!/usr/bin/env python3
"""torch's tensors born in gshm: CUDAPluggableAllocator with gshm_malloc and gshm_free.

usage: torch_pool.py [BUNDLE]

Starts a gshmd of its own and makes libgshm torch's allocator. Tensors are computed with and checked; another process opens one
by what gshm_pool_locate() says, without a copy, reads it and writes to it; what is freed is free; what does not fit is torch's
OutOfMemoryError, also with a MemPool. Prints PASS, SKIP with the
reason, or FAIL; exit status 0, 77 or 1. GSHM_BIN is the folder of gshmd (default: bin or build/bin of BUNDLE).
"""
import ctypes
import os
import pathlib
import subprocess
import sys

import gshmd

COUNT = 1_000_000
WRITE = 1 << 9


class ConnectOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("timeout_ms", ctypes.c_int32), ("dir", ctypes.c_char_p)]


class Location(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("id", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("device", ctypes.c_char * 16),
    ]


class View:
    """What torch reads: where the numbers are, and what they are."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def load(library):
    lib = ctypes.CDLL(str(library))
    lib.gshm_last_error.restype = ctypes.c_char_p
    lib.gshm_data.restype = ctypes.c_void_p
    lib.gshm_data.argtypes = [ctypes.c_void_p]
    lib.gshm_pool_locate.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.gshm_open_id.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p]
    return lib


def require(lib, status):
    if status != 0:
        raise RuntimeError(lib.gshm_last_error().decode())


def locate(lib, tensor):
    location = Location(struct_size=ctypes.sizeof(Location))
    require(lib, lib.gshm_pool_locate(tensor.data_ptr(), ctypes.byref(location)))
    return location


def second_process(library, directory, identity, offset):
    import torch

    lib = load(library)
    client = ctypes.c_void_p()
    options = ConnectOptions(ctypes.sizeof(ConnectOptions), 60000, directory.encode())
    require(lib, lib.gshm_connect(ctypes.byref(options), ctypes.byref(client)))
    handle = ctypes.c_void_p()
    require(lib, lib.gshm_open_id(client, int(identity), WRITE, ctypes.byref(handle)))
    address = lib.gshm_data(handle) + int(offset)
    tensor = torch.as_tensor(View(address, COUNT), device="cuda:0")
    assert tensor.data_ptr() == address, "torch has made a copy"
    print(float(tensor.double().sum()))
    tensor += 1.0
    torch.cuda.synchronize()
    return 0


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def on_pool(torch, lib, library, directory):
    numbers = torch.arange(COUNT, dtype=torch.float32, device="cuda:0") % 1000
    location = locate(lib, numbers)
    check(location.device.startswith(b"cuda:"), "the tensor is not on a GPU of gshmd")
    check(location.size_bytes >= COUNT * 4, "the allocation is smaller than the tensor")
    expected = (torch.arange(COUNT, dtype=torch.float32) % 1000).double()
    check(float(numbers.double().sum()) == float(expected.sum()), "the sum is wrong")
    check(torch.equal((numbers * 2 + 1).cpu().double(), expected * 2 + 1), "arithmetic is wrong")

    torch.cuda.synchronize()
    command = [sys.executable, os.path.abspath(__file__), "--second", str(library), str(directory), str(location.id),
               str(location.offset)]
    child = subprocess.run(command, capture_output=True, text=True)
    check(child.returncode == 0, "the second process:\n" + child.stdout + child.stderr)
    check(float(child.stdout.split()[-1]) == float(expected.sum()), "the second process reads " + child.stdout)
    check(torch.equal(numbers.cpu().double(), expected + 1), "what the second process wrote is not here")

    # Many tensors on two streams: torch frees them in the order of the stream that they were made on.
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for turn in range(200):
        with torch.cuda.stream(streams[turn % 2]):
            value = torch.full((turn * 1000 + 1,), float(turn), device="cuda:0")
            check(float((value * 3).max()) == turn * 3.0, f"turn {turn}: another tensor's numbers")
            del value
    torch.cuda.synchronize()

    # A tensor that does not fit is an error that programs know, and no tensor without memory.
    try:
        torch.empty(1 << 46, dtype=torch.uint8, device="cuda:0")
        check(False, "a tensor of 64 TiB was made")
    except torch.OutOfMemoryError as error:
        check("gshm" in str(error), f"the error does not name gshm: {error}")

    kept = numbers.data_ptr()
    del numbers
    gone = Location(struct_size=ctypes.sizeof(Location))
    check(lib.gshm_pool_locate(kept, ctypes.byref(gone)) != 0, "a tensor that is gone is still allocated")


def on_mem_pool(torch, lib, library, directory):
    """torch's own cache over segments of gshm. On a full GPU torch raises OutOfMemoryError; after empty_cache() it fits."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "gshm_malloc", "gshm_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    free, total = torch.cuda.mem_get_info()
    cached = torch.empty(free * 3 // 4, dtype=torch.uint8, device="cuda:0")
    del cached  # stays in torch's cache, outside of gshm
    with torch.cuda.use_mem_pool(pool):
        numbers = torch.arange(COUNT, dtype=torch.float32, device="cuda:0") % 1000
        location = locate(lib, numbers)
        check(location.size_bytes >= COUNT * 4, "the allocation is smaller than the tensor")
        try:
            torch.empty(free // 2, dtype=torch.uint8, device="cuda:0")
            check(False, "a tensor was made in memory that torch has cached")
        except torch.OutOfMemoryError:
            pass
    torch.cuda.empty_cache()  # outside of the block: inside, it frees the cache of the MemPool alone
    with torch.cuda.use_mem_pool(pool):
        after = torch.empty(free // 2, dtype=torch.uint8, device="cuda:0")
        after[-1] = 2
        check(int(after[-1]) == 2, "the tensor after the retry is wrong")
        check(locate(lib, after).size_bytes >= free // 2, "the tensor after the retry is not in gshm")
        try:
            torch.empty(total, dtype=torch.uint8, device="cuda:0")
            check(False, "a tensor as large as the GPU was made")
        except torch.OutOfMemoryError:
            pass
        check(float(numbers.double().sum()) == float((torch.arange(COUNT) % 1000).double().sum()), "the sum is wrong")
    del numbers, after


def used_bytes(programs, directory):
    out = subprocess.run([programs / "gshm", "--dir", directory, "df"], capture_output=True, text=True)
    return out.stdout


def run(programs, library, directory, with_mem_pool):
    import torch

    os.environ["GSHM_DIR"] = str(directory)
    if with_mem_pool:
        on_mem_pool(torch, load(library), library, directory)
        print(f"a MemPool of torch {torch.__version__} over gshm: a full GPU is an error, and fits after empty_cache()", flush=True)
        os._exit(0)  # torch frees the pool after CUDA at its end
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "gshm_malloc", "gshm_free")
    torch.cuda.memory.change_current_allocator(allocator)  # before the first GPU allocation
    lib = load(library)
    on_pool(torch, lib, library, directory)
    print(used_bytes(programs, directory))
    print(f"PASS: {COUNT} numbers of torch {torch.__version__}, born in gshm, in another process without a copy", flush=True)
    return 0


def main_process(root):
    try:
        import torch
    except ImportError:
        print("SKIP: torch is not here")
        return 77
    if not torch.cuda.is_available():
        print("SKIP: torch finds no GPU")
        return 77
    if not hasattr(torch.cuda.memory, "CUDAPluggableAllocator"):
        print(f"SKIP: torch {torch.__version__} has no pluggable allocators")
        return 77
    programs = gshmd.find_programs(root)
    if programs is None:
        print(f"FAIL: no gshmd below {root}")
        return 1
    try:
        with gshmd.running(programs) as daemon:
            # In a separate process: torch's allocator cannot be changed back, and frees its tensors at its end.
            for mode in ["--mem-pool", "--first"]:
                command = [sys.executable, os.path.abspath(__file__), mode, str(programs), str(daemon.library),
                           str(daemon.directory)]
                if status := subprocess.run(command).returncode:
                    return status
            return 0
    except gshmd.NotStarted as error:
        print(f"FAIL: gshmd does not start: {error}")
        return 1


def main():
    if sys.argv[1:2] == ["--second"]:
        return second_process(*sys.argv[2:6])
    if sys.argv[1:2] in (["--first"], ["--mem-pool"]):
        try:
            return run(*map(pathlib.Path, sys.argv[2:5]), sys.argv[1] == "--mem-pool")
        except (AssertionError, RuntimeError) as error:
            print(f"FAIL: {error}")
            return 1
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent.parent
    return main_process(pathlib.Path(root))


if __name__ == "__main__":
    sys.exit(main())
