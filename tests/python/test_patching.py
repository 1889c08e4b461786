"""gshm.patch() and gshm.transformers, with packages that are made for the test."""
import sys
import types

import pytest
import torch
from conftest import DEVICE, run_python
from files import make

import gshm

pytestmark = pytest.mark.skipif(DEVICE != "host", reason="torch of the distribution has no GPU")


@pytest.fixture(autouse=True)
def daemon(gshmd, monkeypatch):
    monkeypatch.setenv("GSHM_DIR", str(gshmd.dir))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(make({"w": ("F32", (2, 3)), "b": ("F32", (3,))}, {"format": "pt"}))
    return path


def module(name, monkeypatch, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def original(monkeypatch, tmp_path):
    """A package safetensors, and a program that has imported its names."""

    class safe_open:
        pass

    def load_file():
        pass

    class SafetensorError(Exception):
        pass

    (tmp_path / "flax.py").write_text("from safetensors import safe_open")
    package = module("safetensors", monkeypatch, safe_open=safe_open, SafetensorError=SafetensorError, __path__=[str(tmp_path)])
    package.torch = module("safetensors.torch", monkeypatch, load_file=load_file, safe_open=safe_open, _private=7)
    monkeypatch.delitem(sys.modules, "safetensors.flax", raising=False)
    program = module("program", monkeypatch, safe_open=safe_open, load=load_file, st=package.torch, Error=SafetensorError, other=1)
    yield program, package
    gshm.unpatch()


def test_names_that_are_imported_already(original, file):
    program, package = original
    before = dict(vars(program))
    gshm.patch()
    gshm.patch()
    assert program.safe_open is gshm.safetensors.safe_open and program.load is gshm.safetensors.torch.load_file
    assert program.st is gshm.safetensors.torch and program.Error is gshm.safetensors.SafetensorError and program.other == 1
    assert package.safe_open is before["safe_open"], "the original itself is unchanged"
    import safetensors.torch
    from safetensors import safe_open

    assert safe_open is gshm.safetensors.safe_open and safetensors.torch.load_file(file)["w"].shape == (2, 3)
    import safetensors.flax

    assert safetensors.flax.safe_open is safe_open, "parts that gshm does not have are the original's"
    assert safetensors.torch._private == 7 and not hasattr(safetensors.torch, "nothing")
    with pytest.raises(program.Error):
        program.safe_open(__file__, "pt")
    gshm.unpatch()
    assert vars(program) == before and sys.modules["safetensors"] is package and len(gshm.safetensors.__path__) == 1
    assert not hasattr(gshm.safetensors.torch, "_private")
    gshm.unpatch()


def test_without_the_original(monkeypatch, file):
    if "safetensors" in sys.modules:
        pytest.skip("the package is there")
    gshm.patch(shared=True)
    try:
        from safetensors.torch import load_file

        assert load_file(file)["b"].shape == (3,)
    finally:
        gshm.unpatch()
    assert "safetensors" not in sys.modules and "safetensors.torch" not in sys.modules


def test_torch_is_imported_later():
    code = """
import sys, gshm
gshm.patch()
import safetensors
assert "torch" not in sys.modules and safetensors is gshm.safetensors
from safetensors.torch import load_file
import safetensors.torch
assert load_file.__module__ == "gshm.safetensors.torch" and safetensors.torch is sys.modules["gshm.safetensors.torch"]
assert safetensors.torch.__name__ == "gshm.safetensors.torch" and "torch" in sys.modules
finders = len(sys.meta_path)
gshm.unpatch()
assert "safetensors.torch" not in sys.modules and len(sys.meta_path) == finders - 1
"""
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr


class Model(torch.nn.Module):
    calls = []

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.empty(2, 3, device="meta"))
        self.b = torch.nn.Parameter(torch.empty(3, device="meta"))

    @classmethod
    def from_pretrained(cls, path, *arguments, state_dict=None, **options):
        """As transformers does: no copy if type and device fit."""
        utils = sys.modules["transformers.modeling_utils"]
        utils.caching_allocator_warmup(None, {}, None)
        cls.calls.append((path, arguments, options))
        assert path is None, "transformers takes either a path or a state"
        made = cls()
        made.generation_config = "default"
        for name, tensor in state_dict.items():
            setattr(made, name, torch.nn.Parameter(tensor[...].to("cpu", torch.float32)))
        return made


@pytest.mark.parametrize("version, key", [("5.15.1", "dtype"), ("4.40.0.dev0", "torch_dtype")])
def test_transformers(monkeypatch, file, client, version, key):
    def warmup(*_):
        raise MemoryError("the whole model's size")

    class Config:
        from_pretrained = staticmethod(lambda folder, **options: (folder, options))

    (file.parent / "generation_config.json").write_text("{}")
    module("transformers", monkeypatch, __version__=version, AutoConfig=Config, GenerationConfig=Config)
    utils = module("transformers.modeling_utils", monkeypatch, caching_allocator_warmup=warmup)
    first = gshm.transformers.from_pretrained(Model, file.parent, 1, device="cpu", trust_remote_code=True)
    second = gshm.transformers.from_pretrained(Model, str(file.parent), device_map={"": "cpu"})
    assert utils.caching_allocator_warmup is warmup, "as before"
    folder = str(file.parent)
    expected = {"trust_remote_code": True, key: "auto", "config": (folder, {"trust_remote_code": True})}
    assert Model.calls[-2] == (None, (1,), expected) and first.generation_config == (folder, {})
    assert torch.equal(first.w, second.w) and not first.w.requires_grad
    shared = gshm.torch.load(file.parent, "cpu")
    assert gshm.locate(first.w.data_ptr()).id == gshm.locate(shared["w"].data_ptr()).id, "no copy"
    assert len(client.list(recursive=True)) == 1
    with pytest.raises(ValueError, match="device_map"):
        gshm.transformers.from_pretrained(Model, file.parent, device_map="auto")
