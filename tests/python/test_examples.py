"""The examples for Python, as a user runs them: against a gshmd, each as a program of its own."""
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, SOURCE

import gshm

EXAMPLES = SOURCE / "examples"
USED = DEVICE if DEVICE != "host" and torch.cuda.is_available() else "host"  # by examples with torch


@pytest.fixture
def run(gshmd, tmp_path):
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
        with gshm.connect(gshmd.dir, timeout=30) as client:  # a new one: gshmd serves it after the sessions that have ended
            assert client.list() == [] and client.unlinked() == []
            assert [one.object_bytes for one in client.df()] == [0 for _ in client.df()]
        assert os.listdir(files) == [] and os.listdir(cwd) == []
        assert "Traceback" not in ended.stderr
        return ended.stdout

    return run


def number(pattern, text):
    (found,) = re.findall(pattern, text)
    return int(found)


def test_share_model(run):
    text = run(EXAMPLES / "python/share_model.py")
    read = number(r"process 1 has read (\d+) bytes", text)
    assert number(r"process 2 has read (\d+) bytes", text) == 0
    after_one, after_two = map(int, re.findall(rf"weights on {USED}: (\d+) bytes", text))
    assert read <= after_one == after_two < 1.1 * read, "the weights are in memory once"
    width, words, layers = 128, 1000, 4
    parameters = words * width + layers * (5 * width * width + 2 * width) + width  # the head is the embedding
    assert parameters * 4 <= read < parameters * 4 + 10_000
    assert number(r"processes that hold the weights: (\d+)", text) == 2
    assert "equal logits in both: True\nequal to those of the original: True\n" in text


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
    # On a GPU a checkpoint is sealed in the background, and the process may be killed before the last one is.
    (*begins, again) = re.findall(r"training begins with step (\d+)", text)
    assert begins == ["0", "0"] and again in (["20"] if USED == "host" else ["10", "20"])
    assert "it was ended by SIGKILL after 25 steps" in text
    losses = re.findall(r"step (\d+): loss ([\d.]+), undisturbed ([\d.]+)", text)
    assert [step for step, _, _ in losses] == ["0", "8", "16", "24", "32"]
    assert all(loss == undisturbed for _, loss, undisturbed in losses)
    assert float(losses[-1][1]) < 0.5 * float(losses[0][1]), "it learns"
    assert "the same losses as those of an undisturbed run: True\n" in text
    assert "disturbed.safetensors has the state after 40 steps" in text


# ---- the notebook ----
NOTEBOOK = EXAMPLES / "tour.ipynb"

# Runs the cells as Jupyter does: one after the other, in one interpreter.
RUNNER = """
import json, sys
names = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
print("times:", json.dumps(names["times"]))
"""


def test_the_notebook_is_stored_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4 and notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown") and "".join(cell["source"]).strip()
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def check_tour(text, other):
    assert re.search(r"^host: \d+ of 256 MiB are in use$", text, re.M) and f"this tour uses {USED}\n" in text
    (squares,) = re.findall(r"^tensor\(\[(.*)\]", text, re.M)
    assert [float(one) for one in squares.split(",")] == [one * one for one in range(10)]
    assert "another process: 285.0\n" in text
    assert re.findall(r"gshm, (\w+): (\d+) bytes read; the same weights: (\w+)", text) == [
        ("first", str(64 << 20), "True"),
        ("again", "0", "True"),
    ]
    listed = re.findall(rf"(\d+)  sealed  {USED}  held by 1 process\(es\)  (\S+)\n", text)
    assert [name for _, name in listed] == [f"model/model-0000{n}-of-00004.safetensors" for n in (1, 2, 3, 4)] + ["squares"]
    assert sum(int(size) for size, _ in listed) >= (64 << 20) + 40
    assert f"{USED}: 64 MiB in objects\n" in text and "left: False []\n" in text
    (times,) = re.findall(r"times: (.*)\n", text)
    assert list(json.loads(times)) == [other, "gshm, first", "gshm, again"] and min(json.loads(times).values()) > 0


def test_tour(run):
    text = run("-c", RUNNER, NOTEBOOK, environment={"MPLBACKEND": "Agg"})
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        other = "a plain reader"
    else:
        other = "safetensors"
    check_tour(text, other)


# In the place of packages that the distribution's Python need not have.
PACKAGES = {
    "safetensors/torch.py": """
import json, torch

def load_file(filename, device="cpu"):
    with open(filename, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    everything = torch.frombuffer(data, dtype=torch.float32).to(device)
    header.pop("__metadata__", None)
    return {name: everything[one["data_offsets"][0] // 4 :][: one["shape"][0] * one["shape"][1]].view(one["shape"])
            for name, one in header.items()}
""",
    "matplotlib/pyplot.py": """
def __getattr__(name):
    def call(*arguments):
        print("plot:", name, arguments)
        return __import__("sys").modules[__name__]
    return call
""",
}


def test_tour_with_other_packages(run, tmp_path):
    """safetensors and matplotlib are used if they are there."""
    for name, code in PACKAGES.items():
        file = tmp_path / "packages" / name
        file.parent.mkdir(parents=True)
        (file.parent / "__init__.py").touch()
        file.write_text(code)
    text = run("-c", RUNNER, NOTEBOOK, packages=tmp_path / "packages")
    check_tour(text, "safetensors")
    assert "plot: barh (['safetensors', 'gshm, first', 'gshm, again'], [" in text and "plot: show ()\n" in text
