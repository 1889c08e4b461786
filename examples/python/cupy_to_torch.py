#!/usr/bin/env python3
"""An array of CuPy is read, and changed, by torch in another process, without a copy. Without CuPy: an array of NumPy.

Start gshmd first, then: python3 examples/python/cupy_to_torch.py
"""
import multiprocessing

import gshm

NAME = "examples/cupy_to_torch"


def read(array):
    """Another process. A gshm object that is sent to it arrives as a reference of some hundred bytes, and is opened."""
    import torch

    tensor = torch.from_dlpack(array)
    print(f"torch on {tensor.device}: {tuple(tensor.shape)}, sum {tensor.sum().item():.0f}")
    print("the same address as the object:", tensor.data_ptr() == array.ptr, flush=True)
    tensor *= 2
    array.sync()  # waits for the GPU


def choose_package(c):
    """CuPy and a GPU, if both it and gshmd have one; else NumPy and host."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() > 0 and "cuda:0" in [one.name for one in c.devices()]:
            return cupy, "cuda:0"
    except Exception as error:  # no CuPy, or no driver
        print("without CuPy:", error)
    import numpy

    return numpy, "host"


def main():
    c = gshm.connect()
    package, device = choose_package(c)
    with c.create(NAME, shape=(100, 100), dtype="float32", device=device) as made:
        array = package.asarray(made)  # the memory of the object, in which CuPy computes
        array[:] = package.arange(100, dtype="float32")
        made.sync()
        print(f"{package.__name__} on {device}: {array.shape}, sum {float(array.sum()):.0f}", flush=True)
        reader = multiprocessing.get_context("spawn").Process(target=read, args=(made,), daemon=True)
        reader.start()
        reader.join()
        print(f"{package.__name__} after torch has doubled it: sum {float(array.sum()):.0f}")
    print("sealed:", c.stat(NAME).state == "sealed")  # at the end of the with block: from now on no one can change it
    c.unlink(NAME)


if __name__ == "__main__":
    main()
