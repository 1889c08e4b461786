"""The Python blocks of the documentation run, one after the other."""
import os
import pathlib
import re

import pytest
from conftest import SOURCE, run_python


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


def test_every_call_is_documented():
    import gshm

    text = (SOURCE / "docs/python.md").read_text()
    for kind in (gshm.Client,):
        for name in dir(kind):
            if not name.startswith("_") and callable(getattr(kind, name)) and name != "close":
                assert re.search(rf"\b{name}\b", text), name
