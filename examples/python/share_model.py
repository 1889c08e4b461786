#!/usr/bin/env python3
"""Two processes serve one model, whose weights are in memory once.

The model has the form of those of Hugging Face: a folder with several safetensors files and an index. The first process
that loads it reads the files; the second one gets the same memory, and reads nothing.

Start gshmd first, then: python3 examples/python/share_model.py
"""
import json
import multiprocessing
import os
import tempfile
import time

import torch

import gshm
import gshm.safetensors.torch
import gshm.torch

NAME = "examples/share_model"  # the directory of the weights in gshm
WORDS, WIDTH, LAYERS = 1000, 128, 4
PROMPT = torch.tensor([3, 14, 159, 26, 535])


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, torch.nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x):
        scores = self.q_proj(x) @ self.k_proj(x).T / WIDTH**0.5
        later = torch.ones_like(scores).triu(1).bool()
        return self.o_proj(scores.masked_fill(later, float("-inf")).softmax(-1) @ self.v_proj(x))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(), Attention()
        self.post_attention_layernorm, self.mlp = Norm(), torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + torch.nn.functional.silu(self.mlp(self.post_attention_layernorm(x)))


class Model(torch.nn.Module):
    """Tokens in, logits out. The embedding is the output layer, too: two names for one tensor."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = Norm()
        self.lm_head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def write_folder(model, folder):
    """Two files and their index. A tensor with two names is written once."""
    state = {name: one for name, one in model.state_dict().items() if name != "lm_head.weight"}
    names = sorted(state)
    where = {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        gshm.safetensors.torch.save_file({name: state[name] for name in part}, os.path.join(folder, file))
        where.update({name: file for name in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as index:
        json.dump({"metadata": {}, "weight_map": where}, index)


def put_weights(model, weights):
    """The same as model.load_state_dict(weights, assign=True), which torch has since 2.1: nothing is copied."""
    for name, tensor in weights.items():
        owner, _, key = name.rpartition(".")
        setattr(model.get_submodule(owner), key, torch.nn.Parameter(tensor, requires_grad=False))
    model.tie_weights()


def serve(folder, device, parent):
    """A process that loads the model, and answers with its logits."""
    start = time.perf_counter()
    weights = gshm.torch.load(folder, device, name=NAME)
    seconds = time.perf_counter() - start
    model = Model().to("meta")  # without memory of its own
    put_weights(model, weights)
    with torch.no_grad():
        logits = model(PROMPT.to(weights["norm.weight"].device))
    parent.send((weights.read_bytes, seconds, logits.tolist()))
    parent.recv()  # the model is in use until then


def compare(c, device, folder):
    def object_bytes():
        return next(one.object_bytes for one in c.df() if one.name == device)

    spawn = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
    model = Model()
    write_folder(model, folder)
    before = object_bytes()
    workers, answers = [], []
    for number in (1, 2):
        here, there = spawn.Pipe()
        worker = spawn.Process(target=serve, args=(folder, device, there), daemon=True)
        worker.start()
        there.close()
        read_bytes, seconds, logits = here.recv()
        print(f"process {number} has read {read_bytes} bytes in {seconds * 1000:.1f} ms")
        print(f"  weights on {device}: {object_bytes() - before} bytes")
        workers.append((worker, here))
        answers.append(torch.tensor(logits))
    pids = {holder.pid for name, _ in c.list(NAME) for holder in c.holders(f"{NAME}/{name}")}
    print("processes that hold the weights:", len(pids))
    with torch.no_grad():
        expected = model(PROMPT)
    print("equal logits in both:", torch.equal(answers[0], answers[1]))
    print("equal to those of the original:", torch.allclose(answers[0], expected, atol=1e-3))
    for worker, here in workers:
        here.send("end")
        worker.join()


def main():
    c = gshm.connect()
    has_gpu = torch.cuda.is_available() and "cuda:0" in [one.name for one in c.devices()]
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(c, "cuda:0" if has_gpu else "host", folder)
    finally:  # the weights outlive the processes
        c.unlink(NAME, recursive=True)


if __name__ == "__main__":
    main()
