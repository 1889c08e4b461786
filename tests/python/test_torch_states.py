"""gshm.torch.save: states as sealed objects, then as files."""
import json
import os
import struct
import subprocess
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from conftest import run_python

import gshm
import gshm.torch
from gshm import stores
from gshm.torch.states import flatten, unflatten


def read_safetensors(path):
    """A reader of its own, which knows the format alone: header and bytes, without gaps."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    assert (8 + length) % 8 == 0
    at, found = 0, {}
    for name, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = one["data_offsets"]
        assert begin == at
        found[name] = (one["dtype"], one["shape"], data[8 + length + begin : 8 + length + end])
        at = end
    assert 8 + length + at == len(data)
    return found, metadata


def training_state(place, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(8, 4).to(place)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(8, device=place)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "loss": 0.5, "name": "run"}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other and type(one) is type(other)


def test_a_state_comes_back(client, place, tmp_path):
    state = training_state(place)
    kept = {name: one.clone() for name, one in state["model"].items()}
    saved = gshm.torch.save(state, "run/7", path=tmp_path / "7.safetensors", client=client)
    for one in state["model"].values():
        one.zero_()  # training goes on
    assert saved.wait() is saved and saved.done and saved.sealed
    seen = gshm.torch.load_state("run/7", client=client)
    assert same(dict(seen["model"]), kept) and same(seen["optimizer"], state["optimizer"])
    assert (seen["step"], seen["loss"], seen["name"]) == (7, 0.5, "run")
    found, metadata = read_safetensors(tmp_path / "7.safetensors")
    kind, shape, data = found["model.weight"]
    assert (kind, shape, data) == ("F32", [4, 8], kept["weight"].cpu().numpy().tobytes()) and metadata["format"] == "pt"
    assert os.listdir(tmp_path) == ["7.safetensors"]
    assert "gshm.store" not in client.attributes("run/7") and json.loads(client.attributes("run/7")["gshm.tensors"])["format"] == 1
    mine = gshm.torch.load_state("run/7", client=client, copy=True)
    mine["model"]["weight"].zero_()
    assert same(seen["model"]["weight"], kept["weight"])


def test_the_next_state_replaces_the_last(client, place):
    gshm.torch.save({"a": torch.zeros(3, device=place)}, "s", client=client).wait()
    old = gshm.torch.load_state("s", client=client)
    gshm.torch.save({"a": torch.ones(3, device=place)}, "s", client=client).wait()
    assert gshm.torch.load_state("s", client=client)["a"].tolist() == [1, 1, 1] and old["a"].tolist() == [0, 0, 0]
    with pytest.raises(FileExistsError):
        gshm.torch.save({"a": torch.zeros(3, device=place)}, "s", client=client, replace=False).wait()


def test_tied_and_strided_tensors(client, place):
    whole = torch.arange(12.0, device=place).view(3, 4)
    gshm.torch.save({"a": whole, "b": whole, "turned": whole.t(), "part": whole[1:, 1]}, "s", client=client).wait()
    seen = gshm.torch.load_state("s", client=client)
    assert seen["a"] is seen["b"] and torch.equal(seen["turned"], whole.t()) and seen["part"].tolist() == [5, 9]


def test_conjugated_and_negated_views_are_other_tensors(client, place):
    z = torch.tensor([1 + 2j, 3 - 4j], device=place)
    state = {"a": z, "b": z.conj(), "again": z.conj(), "c": z.conj().imag, "d": z.imag}
    assert state["c"].is_neg()
    gshm.torch.save(state, "s", client=client).wait()
    seen = gshm.torch.load_state("s", client=client)
    assert all(torch.equal(seen[name], one) for name, one in state.items()) and seen["b"] is seen["again"]


def test_what_cannot_be_saved_is_named(client, place):
    for state, text in (
        ({"a": {"b": object()}}, "a.b is a object"),
        ({"a": {(1, 2): 3}}, "a has a key that is a tuple"),
        ({"a": torch.empty(2, device="meta")}, "a is on the device meta"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "a: tensors of complex128"),
        ({"a": {"b": torch.eye(2).to_sparse()}}, "a.b is sparse"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            gshm.torch.save(state, "s", client=client)
    assert client.list() == []


PLAIN = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
SHAPES = st.lists(st.integers(0, 3), max_size=3)
TENSORS = st.builds(
    lambda shape, kind: torch.arange(max(int(torch.tensor(shape).prod()), 0)).view(shape).to(kind),
    SHAPES, st.sampled_from([torch.float32, torch.int64, torch.bool, torch.bfloat16]),
)  # fmt: skip
STATES = st.recursive(
    PLAIN | TENSORS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@hypothesis.given(STATES)
def test_any_state_is_put_together_again(state):
    tensors, text = flatten(state)
    assert same(unflatten(text, tensors), state)


WRITER = """
import os, sys, torch, gshm, gshm.torch
from gshm import stores
stores.PIECE, stores.WINDOW = 4096, 16384
notes = []
note = stores._note
def die_after(fd, at):
    notes.append(note(fd, at))
    if len(notes) == 4: os.kill(os.getpid(), 9)
    return at
stores._note = die_after
state = {"a": torch.arange(20000.0, device=sys.argv[3]), "b": torch.ones(3)}
gshm.torch.save(state, "s", path=sys.argv[2], client=gshm.connect(sys.argv[1])).wait()
"""


def test_a_killed_writer_is_continued(client, gshmd, place, tmp_path, monkeypatch):
    path = tmp_path / "s.safetensors"
    assert run_python(WRITER, gshmd.dir, path, place).returncode == -9
    (partial,) = os.listdir(tmp_path)
    assert partial.endswith(".part") and not path.exists(), "nothing that is half complete has the name"
    assert gshm.torch.load_state("s", client=client)["a"][-1] == 19999, "the object is there"
    monkeypatch.setattr(stores, "PIECE", 4096)
    monkeypatch.setattr(stores, "WINDOW", 16384)
    begins = []
    write = stores._write
    monkeypatch.setattr(stores, "_write", lambda ring, file, source, window: (begins.append(window[0][2]), write(ring, file, source, window)))
    assert gshm.torch.store("s", client=client) == str(path)
    assert begins[0] > 32768, "it goes on where the other one was"
    found, _ = read_safetensors(path)
    assert found["a"][2] == torch.arange(20000.0).numpy().tobytes() and os.listdir(tmp_path) == [path.name]
    assert gshm.torch.store("s", client=client) is None


def test_a_broken_partial_file_is_written_anew(client, gshmd, place, tmp_path):
    path = tmp_path / "s.safetensors"
    assert run_python(WRITER, gshmd.dir, path, place).returncode == -9
    (partial,) = tmp_path.iterdir()
    partial.write_bytes(b"\0" * 50)
    gshm.torch.store("s", client=client)
    assert read_safetensors(path)[0]["a"][2] == torch.arange(20000.0).numpy().tobytes()


def test_a_newer_state_wins(client, gshmd, place, tmp_path):
    """The older one is still being written when the newer one is complete."""
    path = tmp_path / "s.safetensors"
    assert run_python(WRITER, gshmd.dir, path, place).returncode == -9
    old = client.open("s")
    gshm.torch.save({"a": torch.zeros(2, device=place)}, "s", path=path, client=client).wait()
    assert [one.name for one in tmp_path.iterdir()] == [path.name], "the rest of the older one is removed"
    from gshm.tables import Table
    from gshm.torch.checkpoints import _store

    _store(old, Table.of_object(old), "s", str(path), None)
    assert read_safetensors(path)[0]["a"][2] == bytes(8) and len(os.listdir(tmp_path)) == 1


def test_two_processes_write_the_same_state(client, gshmd, place, tmp_path):
    path = tmp_path / "s.safetensors"
    assert run_python(WRITER, gshmd.dir, path, place).returncode == -9
    code = "import sys, gshm, gshm.torch; gshm.torch.store('s', client=gshm.connect(sys.argv[1]), path=sys.argv[2])"
    running = [subprocess.Popen([sys.executable, "-c", code, str(gshmd.dir), str(path)]) for _ in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert read_safetensors(path)[0]["a"][2] == torch.arange(20000.0).numpy().tobytes() and os.listdir(tmp_path) == [path.name]


def test_a_daemon_is_killed_during_a_write(client, gshmd, place, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PIECE", 4096)
    monkeypatch.setattr(stores, "WINDOW", 16384)
    killed = threading.Event()

    def progress(done, total):
        if not killed.is_set():
            gshmd.kill()
            gshmd.start()
            killed.set()

    path = tmp_path / "s.safetensors"
    gshm.torch.save({"a": torch.arange(20000.0, device=place)}, "s", path=path, client=client, progress=progress).wait()
    assert killed.is_set() and read_safetensors(path)[0]["a"][2] == torch.arange(20000.0).numpy().tobytes()


def test_the_process_waits_for_the_file(client, gshmd, place, tmp_path):
    code = """
import sys, torch, gshm, gshm.torch
gshm.torch.save({"a": torch.arange(1000000.0, device=sys.argv[3])}, "s", path=sys.argv[2], client=gshm.connect(sys.argv[1]))
"""
    assert run_python(code, gshmd.dir, tmp_path / "s", place).returncode == 0
    assert read_safetensors(tmp_path / "s")[0]["a"][1] == [1000000]
    again = gshm.torch.load_file_state(tmp_path / "s", place, client=client)
    assert again["a"][-1] == 999999 and list(again) == ["a"]


def test_errors_of_the_background_are_raised(client, place, tmp_path):
    saved = gshm.torch.save({"a": torch.zeros(2)}, "s", path=tmp_path / "none" / "s", client=client)
    with pytest.raises(FileNotFoundError):
        saved.wait()
    assert gshm.torch.load_state("s", client=client)["a"].tolist() == [0, 0]
