"""unload(): the objects that it removes."""
from __future__ import annotations

import pathlib

import pytest
from files import make

import gshm


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "m.safetensors"
    path.write_bytes(make({"w": ("F32", (4, 6)), "b": ("U8", (3,))}))
    return path


def test_a_checkpoint_is_neither_replaced_nor_removed(client, device, file):
    torch = pytest.importorskip("torch")
    gshm.torch.save({"w": torch.arange(6)}, "models/precious", device="host", client=client)
    before = client.stat("models/precious").id
    with pytest.raises(gshm.Exists):
        gshm.load(file, device, name="models/precious", client=client)
    model = gshm.load(file, device, name="models/m", client=client)
    with pytest.raises(gshm.NotFound):
        gshm.unload("models/precious", client=client)
    assert gshm.unload("models", client=client) == [part.object.name for part in model.parts]
    assert client.stat("models/precious").id == before


def test_unload_removes_all_devices_and_selections(client, device, file):
    for one in client.devices():
        gshm.load(file, one.name, name="m", client=client)
    selected = gshm.load(file, device, name="m", filter=lambda name: name == "b", client=client)
    names = {part.object.name for part in selected.parts}
    gshm.load(file, device, name="m+more", client=client)
    names |= {"m"} | {f"m@{one.name}" for one in client.devices()[1:]}
    assert set(gshm.unload("m", client=client)) == names
    assert [name for name, _ in client.list()] == ["m+more"]
    with pytest.raises(gshm.NotFound):
        gshm.unload("m", client=client)
