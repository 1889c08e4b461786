#!/usr/bin/env python3
"""A worker that generates text is killed. The next one continues with its KV cache, after the last complete token.

The cache is an object that outlives its process (keep=True). An attribute of it has the number of complete tokens: the
part of the next one that the killed worker has written does not count, and is written again.

Start gshmd first, then: python3 examples/python/kv_cache.py
"""
import multiprocessing
import os
import signal

import torch

import gshm

NAME = "examples/kv_cache"
WORDS, WIDTH, LAYERS, TOKENS = 500, 64, 4, 64


def make_weights(device):
    """The same in every worker. A real one attaches shared weights, as share_model.py does."""
    torch.manual_seed(1)
    embedding, head, places = torch.randn(WORDS, WIDTH), torch.randn(WORDS, WIDTH), torch.randn(TOKENS, WIDTH)
    layers = torch.randn(LAYERS, 3, WIDTH, WIDTH) / WIDTH**0.5
    return embedding.to(device), head.to(device), places.to(device), layers.to(device)


def work(name, device, killed_at=None):
    """Generates tokens until there are TOKENS of them. With `killed_at`, dies in the middle of that one."""
    c = gshm.connect()
    if not c.exists(f"{name}/cache"):  # the first worker
        c.create(f"{name}/tokens", (TOKENS,), "int64", device, keep=True)
        c.create(f"{name}/cache", (LAYERS, 2, TOKENS, WIDTH), "float32", device, keep=True, attributes={"complete": 0})
    cache = c.open(f"{name}/cache", write=True)
    kv, tokens = torch.from_dlpack(cache), torch.from_dlpack(c.open(f"{name}/tokens", write=True))
    embedding, head, places, layers = make_weights(kv.device)
    first = int(cache.attributes["complete"])
    print(f"a worker begins with token {first}", flush=True)
    for at in range(first, TOKENS):
        x = places[at] + (embedding[tokens[at - 1]] if at > 0 else 0)
        for layer in range(LAYERS):
            query, key, value = layers[layer] @ x
            kv[layer, 0, at] = key
            if (at, layer) == (killed_at, LAYERS // 2):  # the cache has a key without its value
                os.kill(os.getpid(), signal.SIGKILL)
            kv[layer, 1, at] = value
            keys, values = kv[layer, :, : at + 1]
            x = x + (keys @ query / WIDTH**0.5).softmax(0) @ values
        tokens[at] = (head @ x).argmax()
        cache.sync()  # waits for the GPU
        cache.attributes["complete"] = at + 1


def run(*arguments):
    spawn = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
    worker = spawn.Process(target=work, args=arguments, daemon=True)
    worker.start()
    worker.join()
    return worker.exitcode


def compare(c, device):
    run(f"{NAME}/undisturbed", device)
    ended = run(f"{NAME}/disturbed", device, 40)
    print("the worker was ended by", signal.Signals(-ended).name)
    run(f"{NAME}/disturbed", device)

    tokens, cache = (torch.from_dlpack(c.open(f"{NAME}/disturbed/{part}")) for part in ("tokens", "cache"))
    expected, expected_cache = (torch.from_dlpack(c.open(f"{NAME}/undisturbed/{part}")) for part in ("tokens", "cache"))
    print("tokens:", *tokens.tolist())
    print("the same tokens as those of an undisturbed run:", torch.equal(tokens, expected))
    print("the same cache:", torch.equal(cache, expected_cache))


def main():
    c = gshm.connect()
    has_gpu = torch.cuda.is_available() and "cuda:0" in [one.name for one in c.devices()]
    try:
        compare(c, "cuda:0" if has_gpu else "host")
    finally:
        c.unlink(NAME, recursive=True)


if __name__ == "__main__":
    main()
