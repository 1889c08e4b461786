#!/usr/bin/env python3
"""What vineyard_bench is held against: torch.multiprocessing hands a new tensor of 256 MiB (and one of 64 KiB) to another
process, which reads one number of it. Medians, in microseconds; the tensor is made anew each time, as the buffers are there."""
import statistics
import sys
import time

try:
    import torch
    import torch.multiprocessing as mp
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)


def read(tensors, answers):
    while True:
        tensor = tensors.get()
        if tensor is None:
            return
        answers.put(float(tensor[0]))
        del tensor


def main():
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return 77
    mp.set_start_method("spawn")
    tensors, answers = mp.Queue(), mp.Queue()
    reader = mp.Process(target=read, args=(tensors, answers), daemon=True)
    reader.start()
    for size, name in ((256 << 20, "256 MiB"), (64 << 10, "64 KiB")):
        times = []
        for round in range(60):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            tensor = torch.empty(size // 4, dtype=torch.float32, device="cuda")
            tensor[0] = round
            tensors.put(tensor)
            if answers.get() != round:
                print("the other process reads something else")
                return 1
            if round >= 10:
                times.append((time.perf_counter() - begin) * 1e6)
            del tensor
        print(f"torch {torch.__version__}, {name}: {statistics.median(times):.0f} us (least {min(times):.0f})")
    tensors.put(None)
    reader.join(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
