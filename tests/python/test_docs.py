"""The Python blocks of the documentation run, one after the other."""
import os
import pathlib
import re
import subprocess

import pytest
from conftest import BUILD, SOURCE, run_python
from files import make_folder


def blocks(page: pathlib.Path):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_blocks_of_a_page(page, gshmd, on_host, tmp_path, monkeypatch):
    found = blocks(SOURCE / page)
    assert found
    monkeypatch.setenv("GSHM_DIR", str(gshmd.dir))
    monkeypatch.chdir(tmp_path)
    code = "\n".join(found).replace('"cuda:0"', '"host"')  # torch of the distribution has no CUDA
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr + code
    assert set(os.listdir(tmp_path)) <= {"file", "llama", "last.safetensors"}


def test_commands_of_the_page_about_tensors(gshmd, on_host, tmp_path, monkeypatch):
    """Its first block; files of the names that it has."""
    (found,) = re.findall(r"^```\n(.*?)^```$", (SOURCE / "docs/tensors.md").read_text(), re.DOTALL | re.MULTILINE)
    make_folder(tmp_path / "llama", [{f"layers.{n}.w": ("BF16", (4, 4))} for n in range(3)])
    monkeypatch.setenv("GSHM_DIR", str(gshmd.dir))
    monkeypatch.setenv("PATH", f"{BUILD / 'bin'}:{os.environ['PATH']}")
    script = "set -e\n" + found.replace("cuda:0", "host")
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[:3] == [f"models/llama/model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert "layers.0.w" in ended.stdout and "BF16" in ended.stdout


def test_every_call_is_documented():
    import gshm

    text = (SOURCE / "docs/python.md").read_text()
    for kind in (gshm.Client,):
        for name in dir(kind):
            if not name.startswith("_") and callable(getattr(kind, name)) and name != "close":
                assert re.search(rf"\b{name}\b", text), name
