#!/usr/bin/env python3
"""Training that is killed goes on from its last checkpoint, with the losses that it would have had.

gshm.torch.save() copies the state to an object of gshm, and returns: training goes on while the object is written to
a file. The object outlives the process, so that the next one need not read the file.

Start gshmd first, then: python3 examples/python/checkpoint.py
"""
import multiprocessing
import os
import signal
import tempfile

import torch

import gshm
import gshm.torch

NAME = "examples/checkpoint"
STEPS, EVERY = 40, 10


def batch(step, device):
    """The data of a step. They depend on nothing else, so that every run sees the same."""
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))
    return x.to(device), x.sin().sum(1, keepdim=True).to(device)


def train(name, path, device, parent, killed_at=None):
    """Trains, from the checkpoint if there is one. With `killed_at`, dies in the middle of that step."""
    c = gshm.connect()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if c.exists(name):
        gshm.torch.store(name)  # if the process was killed before the file was complete: completes it
        state = gshm.torch.load_state(name, copy=True)  # a copy, since training changes it
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"training begins with step {first}", flush=True)
    for step in range(first, STEPS):
        x, y = batch(step, device)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if step == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        parent.send((step, loss.item()))
        if (step + 1) % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            gshm.torch.save(state, name, path=path)


def run(*arguments):
    """Trains in another process. Returns the losses by step, and how the process ended."""
    spawn = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
    here, there = spawn.Pipe()
    worker = spawn.Process(target=train, args=(*arguments[:3], there, *arguments[3:]), daemon=True)
    worker.start()
    there.close()
    losses = {}
    while True:
        try:
            step, loss = here.recv()
        except EOFError:
            worker.join()
            return losses, worker.exitcode
        losses[step] = loss


def compare(device, folder):
    files = [os.path.join(folder, name) for name in ("undisturbed.safetensors", "disturbed.safetensors")]
    expected, _ = run(f"{NAME}/undisturbed", files[0], device)
    before, ended = run(f"{NAME}/disturbed", files[1], device, 25)
    print(f"it was ended by {signal.Signals(-ended).name} after {len(before)} steps")
    after, _ = run(f"{NAME}/disturbed", files[1], device)
    losses = {**before, **after}
    for step in sorted(losses)[::8]:
        print(f"  step {step}: loss {losses[step]:.4f}, undisturbed {expected[step]:.4f}")
    print("the same losses as those of an undisturbed run:", losses == expected)
    # Other programs can read the file: it is one of safetensors. gshm also restores what is no tensor.
    state = gshm.torch.load_file_state(files[1], device, name=f"{NAME}/file", copy=True)
    print(f"{os.path.basename(files[1])} has the state after {state['step']} steps")


def main():
    c = gshm.connect()
    has_gpu = torch.cuda.is_available() and "cuda:0" in [one.name for one in c.devices()]
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare("cuda:0" if has_gpu else "cpu", folder)
    finally:
        c.unlink(NAME, recursive=True)


if __name__ == "__main__":
    main()
