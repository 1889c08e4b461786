#!/usr/bin/env python3
"""An object of gshm as a torch (or else cupy) tensor, without a copy, in two processes.

usage: torch_test.py [BUNDLE]

Starts a gshmd of its own, loads libgshm with ctypes and hands gshm_data() to the framework through
__cuda_array_interface__. The first process writes numbers, the second sums them up on the GPU; then the second computes
into an object and the first reads it. Prints PASS, SKIP with the reason, or FAIL; exit status 0, 77 or 1.
GSHM_BIN is the folder of gshmd (default: bin or build/bin of BUNDLE, which is ../.. from here).
"""
import array
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


class CreateSpec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("size_bytes", ctypes.c_uint64),
        ("device", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_size_t),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
    ]


class Gshm:
    """The few calls of gshm.h that are needed here."""

    def __init__(self, library, directory):
        self.lib = ctypes.CDLL(str(library))
        self.lib.gshm_last_error.restype = ctypes.c_char_p
        self.lib.gshm_data.restype = ctypes.c_void_p
        self.lib.gshm_data.argtypes = [ctypes.c_void_p]
        self.lib.gshm_close.argtypes = [ctypes.c_void_p]
        self.lib.gshm_close.restype = None
        for name in ("gshm_copy_in", "gshm_copy_out"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
        self.client = ctypes.c_void_p()
        options = ConnectOptions(ctypes.sizeof(ConnectOptions), 60000, str(directory).encode())
        self.check(self.lib.gshm_connect(ctypes.byref(options), ctypes.byref(self.client)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.gshm_last_error().decode())

    def create(self, name, size_bytes):
        spec = CreateSpec(ctypes.sizeof(CreateSpec), 0o600, name.encode(), size_bytes, b"cuda:0", 0, 0, None, 0)
        handle = ctypes.c_void_p()
        self.check(self.lib.gshm_create(self.client, ctypes.byref(spec), ctypes.byref(handle)))
        return handle

    def open(self, name, flags=0):
        handle = ctypes.c_void_p()
        self.check(self.lib.gshm_open(self.client, name.encode(), flags, ctypes.byref(handle)))
        return handle

    def copy_in(self, handle, data):
        address, count = data.buffer_info()
        self.check(self.lib.gshm_copy_in(handle, 0, address, count * data.itemsize))

    def copy_out(self, handle, data):
        address, count = data.buffer_info()
        self.check(self.lib.gshm_copy_out(handle, 0, address, count * data.itemsize))

    def data(self, handle):
        return self.lib.gshm_data(handle)


class View:
    """What torch and cupy read: where the numbers are, and what they are."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<f8",
            "data": (address, False),  # torch accepts no read-only memory
            "strides": None,
            "version": 3,
        }


def tensor_of(view):
    """The view as the framework's own tensor, and how to wait for the GPU; None where there is no framework."""
    try:
        import torch

        if torch.cuda.is_available():
            tensor = torch.as_tensor(view, device="cuda:0") if view else None
            return "torch " + torch.__version__, tensor, torch.cuda.synchronize
    except ImportError:
        pass
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() > 0:
            return "cupy " + cupy.__version__, cupy.asarray(view) if view else None, cupy.cuda.Device().synchronize
    except Exception:  # ImportError, or the runtime's own where there is no GPU
        pass
    return None


def second_process(library, directory):
    gshm = Gshm(library, directory)
    numbers = gshm.open("torch/numbers")
    _, tensor, wait = tensor_of(View(gshm.data(numbers), COUNT))
    address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.data.ptr
    assert address == gshm.data(numbers), "the framework has made a copy"
    total = float(tensor.sum())
    result = gshm.open("torch/result", WRITE)
    _, output, wait = tensor_of(View(gshm.data(result), COUNT))
    output[:] = tensor * 2.0 + 1.0
    wait()
    print(total)
    return 0


def first_process(root):
    framework = tensor_of(None)
    if framework is None:
        print("SKIP: neither torch nor cupy with a GPU is here")
        return 77
    programs = gshmd.find_programs(root)
    if programs is None:
        print(f"FAIL: no gshmd below {root}")
        return 1
    try:
        with gshmd.running(programs) as daemon:
            return share(framework, daemon.library, daemon.directory)
    except gshmd.NotStarted as error:
        print(f"FAIL: gshmd does not start: {error}")
        return 1


def share(framework, library, directory):
    gshm = Gshm(library, directory)
    numbers = array.array("d", (float(i % 1000) for i in range(COUNT)))
    source = gshm.create("torch/numbers", COUNT * 8)
    gshm.copy_in(source, numbers)
    gshm.check(gshm.lib.gshm_seal(source))
    target = gshm.create("torch/result", COUNT * 8)
    command = [sys.executable, os.path.abspath(__file__), "--second", str(library), str(directory)]
    child = subprocess.run(command, capture_output=True, text=True)
    if child.returncode != 0:
        print("FAIL: the second process:\n" + child.stdout + child.stderr)
        return 1
    if float(child.stdout.split()[-1]) != sum(numbers):
        print(f"FAIL: the sum is {child.stdout.strip()} instead of {sum(numbers)}")
        return 1
    back = array.array("d", bytes(COUNT * 8))
    gshm.copy_out(target, back)
    if any(back[i] != numbers[i] * 2.0 + 1.0 for i in range(COUNT)):
        print("FAIL: what the second process computed is not what the first one reads")
        return 1
    print(f"PASS: {COUNT} numbers shared with {framework[0]} in another process, both ways, without a copy")
    return 0


def main():
    if sys.argv[1:2] == ["--second"]:
        return second_process(sys.argv[2], sys.argv[3])
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent.parent
    return first_process(pathlib.Path(root))


if __name__ == "__main__":
    sys.exit(main())
