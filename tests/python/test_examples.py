"""The examples for Python, as a user runs them: against a gshmd, each as a program of its own."""
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import SOURCE

EXAMPLES = SOURCE / "examples"


@pytest.fixture
def run(client, gshmd, tmp_path):
    """Runs a program, and checks that it leaves nothing behind: no object, no memory, no file."""

    def run(*arguments, packages=None, environment=None):
        files, cwd = tmp_path / "files", tmp_path / "cwd"
        files.mkdir()
        cwd.mkdir()
        path = (f"{packages}:" if packages else "") + os.environ["PYTHONPATH"]
        ended = subprocess.run(
            [sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
            env={**os.environ, "GSHM_DIR": str(gshmd.dir), "TMPDIR": str(files), "PYTHONPATH": path, **(environment or {})},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert client.list() == [] and client.unlinked() == []
        assert [one.object_bytes for one in client.df()] == [0 for _ in client.df()]
        assert os.listdir(files) == [] and os.listdir(cwd) == []
        assert ended.stderr == ""
        return ended.stdout

    return run


def number(pattern, text):
    (found,) = re.findall(pattern, text)
    return int(found)


def test_share_model(run):
    text = run(EXAMPLES / "python/share_model.py")
    read = number(r"process 1 has read (\d+) bytes", text)
    assert number(r"process 2 has read (\d+) bytes", text) == 0
    after_one, after_two = map(int, re.findall(r"weights on host: (\d+) bytes", text))
    assert read <= after_one == after_two < 1.1 * read, "the weights are in memory once"
    width, words, layers = 128, 1000, 4
    parameters = words * width + layers * (5 * width * width + 2 * width) + width  # the head is the embedding
    assert parameters * 4 <= read < parameters * 4 + 10_000
    assert number(r"processes that hold the weights: (\d+)", text) == 2
    assert "equal logits in both: True\nas those of the original: True\n" in text


def test_kv_cache(run):
    text = run(EXAMPLES / "python/kv_cache.py")
    assert re.findall(r"a worker begins with token (\d+)", text) == ["0", "0", "40"]
    assert "the worker was ended by SIGKILL" in text
    (tokens,) = re.findall(r"tokens: ([\d ]+)\n", text)
    assert len(tokens.split()) == 64 and len(set(tokens.split())) > 20, "a wrong cache would show in them"
    assert "the same tokens as those of an undisturbed run: True\nthe same cache: True\n" in text


def test_cupy_to_torch(run):
    text = run(EXAMPLES / "python/cupy_to_torch.py")
    total = sum(range(100)) * 100
    assert re.search(rf"(numpy on host|cupy on cuda:0): \(100, 100\), sum {total}\n", text)
    assert re.search(rf"torch on (cpu|cuda:0): \(100, 100\), sum {total}\nthe same address as the object: True\n", text)
    assert re.search(rf"(numpy|cupy) after torch has doubled it: sum {2 * total}\nsealed: True\n", text)


def test_checkpoint(run):
    text = run(EXAMPLES / "python/checkpoint.py")
    assert re.findall(r"training begins with step (\d+)", text) == ["0", "0", "20"]
    assert "it was ended by SIGKILL after 25 steps" in text
    losses = re.findall(r"step (\d+): loss ([\d.]+), undisturbed ([\d.]+)", text)
    assert [step for step, _, _ in losses] == ["0", "8", "16", "24", "32"]
    assert all(loss == undisturbed for _, loss, undisturbed in losses)
    assert float(losses[-1][1]) < 0.5 * float(losses[0][1]), "it learns"
    assert "the same losses as those of an undisturbed run: True\n" in text
    assert "disturbed.safetensors has the state after 40 steps" in text
