"""gshm.safetensors: the interface of the package safetensors."""
import os
import pickle
import sys

import numpy
import pytest
import torch
from conftest import DEVICE, leases
from files import ACCEPTED, MALFORMED, content, make, raw, size_of

import gshm
import gshm.safetensors
import gshm.safetensors.numpy as st_numpy
import gshm.safetensors.torch as st_torch
from gshm.safetensors import SafetensorError, safe_open

pytestmark = pytest.mark.skipif(DEVICE != "host", reason="torch of the distribution has no GPU")
TENSORS = {"b": ("F32", (4, 6)), "a": ("BF16", (3,)), "c": ("I64", ()), "none": ("F16", (0, 4))}
TYPES = ["BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64", "C64"]


@pytest.fixture(autouse=True)
def daemon(gshmd, monkeypatch):
    """The package finds the daemon by itself."""
    monkeypatch.setenv("GSHM_DIR", str(gshmd.dir))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(make(TENSORS, {"format": "pt"}))
    return path


def data_of(name):
    return content(name, size_of(*TENSORS[name]), TENSORS[name][0])


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def test_a_file_for_torch(file):
    with safe_open(file, framework="pt") as opened:
        assert opened.keys() == ["a", "b", "c", "none"] and opened.offset_keys() == ["b", "a", "c", "none"]
        assert opened.metadata() == {"format": "pt"}
        assert bytes_of(opened.get_tensor("b")) == data_of("b") and opened.get_tensor("a").dtype == torch.bfloat16
        assert opened.get_tensor("c").shape == () and opened.get_tensor("none").shape == (0, 4)
        part = opened.get_slice("b")
        assert part.get_shape() == [4, 6] and part.get_dtype() == "F32"
        whole = opened.get_tensor("b")
        for index in (slice(1, 3), (slice(None), slice(2, 4)), 1, -1, (..., 0), (2, slice(1, None)), []):
            assert torch.equal(part[index], whole[index]), index
        everything = opened.get_tensors()
        assert list(everything) == opened.offset_keys()
    assert torch.equal(part[...], whole), "slices outlive the file"
    for call in (opened.keys, opened.metadata, opened.get_tensors, lambda: opened.get_tensor("a"), lambda: opened.get_slice("a")):
        with pytest.raises(SafetensorError, match="File is closed"):
            call()


def test_tensors_are_private(file, client):
    first, second = st_torch.load_file(file), st_torch.load_file(file)
    first["b"].fill_(7)
    assert bytes_of(second["b"]) == data_of("b") and first["b"].unique().tolist() == [7]
    ((name, info),) = client.list(recursive=True)
    assert info.state == "sealed" and leases(client, name) == 2, "one object for both"
    del first, second
    assert leases(client, name) == 0


def test_a_tensor_of_the_cpu_has_a_storage_of_its_own_size(file, tmp_path):
    for name, one in st_torch.load_file(file).items():
        assert st_torch.storage_size(one) == one.numel() * one.element_size() and one.storage_offset() == 0, name


def test_a_slice_of_a_gpu_copies_no_more_than_itself(file):
    """With the source of a GPU's tensors, which are copies, on memory of the host."""
    with safe_open(file, "pt") as opened:
        expected = opened.get_tensor("b")[1:3].clone()
        opened._source._copies = True
        seen = opened.get_slice("b")[1:3]
    assert torch.equal(seen, expected) and st_torch.storage_size(seen) == 2 * 6 * 4


@pytest.mark.parametrize("kind, shape, size", [("F6_E2M3", [4], 3), ("F6_E3M2", [2, 4], 6), ("F4", [2, 3], 3)])
def test_types_that_no_framework_has(tmp_path, kind, shape, size):
    path = tmp_path / "a.safetensors"
    data = raw(f'{{"a":{{"dtype":"{kind}","shape":{shape},"data_offsets":[0,{size}]}}}}', bytes(size))
    path.write_bytes(data)
    for call in (st_torch.load_file, st_numpy.load_file):
        with pytest.raises(SafetensorError, match="Dtype not understood"):
            call(path)
    for call in (st_torch.load, st_numpy.load):
        with pytest.raises(SafetensorError, match="Dtype not understood"):
            call(data)


def test_a_file_for_numpy(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(make({"x": ("F32", (3, 4)), "y": ("BOOL", (2,)), "z": ("U16", ())}))
    with safe_open(str(path), "np") as opened:
        assert opened.metadata() is None
        x = opened.get_tensor("x")
        assert x.dtype == numpy.float32 and x.tobytes() == content("x", 48) and x.flags.writeable
        part = opened.get_slice("x")
        assert (part[1:, 2] == x[1:, 2]).all() and part[...].shape == (3, 4) and part[-1].shape == (4,) and part[[]].shape == (0, 4)
        with pytest.raises(SafetensorError, match="more slicing indexes than dimensions"):
            part[0, 0, 0]
        with pytest.raises(SafetensorError, match="index 3 out of bounds for tensor dimension #0 of size 3"):
            part[3]
        with pytest.raises(SafetensorError, match="Non empty lists"):
            part[[1]]
    loaded = st_numpy.load_file(path)
    loaded["x"][...] = 5
    assert (st_numpy.load_file(path)["x"] == x).all() and loaded["z"].dtype == numpy.uint16


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_there_and_back(tmp_path, kind):
    from gshm.tables import TYPES as NAMES

    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, NAMES[kind][1]))
    given = {"a": tensor, "empty": tensor[:0], "scalar": tensor[1, 1].clone()}
    data = st_torch.save(given, {"format": "pt"})
    path = tmp_path / "a.safetensors"
    st_torch.save_file(given, path, {"format": "pt"})
    assert path.read_bytes() == data and os.listdir(tmp_path) == ["a.safetensors"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    for loaded in (st_torch.load(data), st_torch.load_file(path)):
        assert all(torch.equal(loaded[name], one) and loaded[name].dtype == one.dtype for name, one in given.items())
    assert dict(gshm.safetensors.deserialize(data))["a"]["dtype"] == kind
    if kind != "BF16":
        arrays = {name: one.numpy() for name, one in given.items()}
        assert st_numpy.save(arrays, {"format": "pt"}) == data
        assert all((st_numpy.load(data)[name] == one).all() for name, one in arrays.items())


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_order_of_the_original(tmp_path):
    """By type, the widest first, then by name; 8 bytes aligned."""
    data = st_torch.save({"b": torch.zeros(1), "a": torch.zeros(1), "z": torch.zeros(1, dtype=torch.int64), "h": torch.zeros(1).half()})
    assert [name for name, _ in gshm.safetensors.deserialize(data)] == ["z", "a", "b", "h"]
    assert int.from_bytes(data[:8], "little") % 8 == 0


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_malformed_files(tmp_path, case):
    path = tmp_path / "a.safetensors"
    path.write_bytes(MALFORMED[case])
    for call in (lambda: safe_open(path, "pt"), lambda: st_torch.load_file(path), lambda: st_numpy.load_file(path)):
        with pytest.raises(SafetensorError, match="Error while deserializing header: ."):
            call()
    with pytest.raises(SafetensorError, match="Error while deserializing: ."):
        st_torch.load(MALFORMED[case])


@pytest.mark.parametrize("case", sorted(ACCEPTED))
def test_unusual_files(tmp_path, case):
    path = tmp_path / "a.safetensors"
    path.write_bytes(ACCEPTED[case])
    assert set(st_torch.load_file(path)) == set(st_torch.load(ACCEPTED[case])) == set(st_numpy.load_file(path))


def test_errors_are_those_of_the_original(file, tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory: none"):
        safe_open("none", "pt")
    with pytest.raises(SafetensorError, match="is a directory"):
        safe_open(tmp_path, "pt")
    with safe_open(file, "pt") as opened:
        for call in (opened.get_tensor, opened.get_slice):
            with pytest.raises(SafetensorError, match="File does not contain tensor nope"):
                call("nope")
            with pytest.raises(TypeError):
                call(3)
    for arguments, text in (
        ({"framework": "cobol"}, "framework cobol is invalid"),
        ({"framework": "pt", "device": "toaster"}, "device toaster is invalid"),
        ({"framework": "pt", "device": 1.5}, "device 1.5 is invalid"),
        ({"framework": "pt", "backend": "carrier"}, 'backend "carrier" is invalid'),
        ({"framework": "np", "device": "cuda:0"}, "Device cuda:0 is not supported for framework numpy"),
    ):
        with pytest.raises(SafetensorError, match=text):
            safe_open(file, **arguments)
    with pytest.raises(TypeError):
        safe_open(file, 3)
    with pytest.raises(TypeError):
        safe_open(file)
    again = pickle.loads(pickle.dumps(SafetensorError("text")))
    assert type(again) is SafetensorError and str(again) == "text"
    with pytest.raises(SafetensorError, match="I/O error"):
        st_torch.save_file({"a": torch.zeros(1)}, tmp_path / "none" / "a")


def test_conjugated_tensors_are_saved_as_they_are():
    z = torch.tensor([1 + 2j, 3 - 4j])
    seen = st_torch.load(st_torch.save({"a": z, "b": z.conj()}))
    assert torch.equal(seen["a"], z) and torch.equal(seen["b"], z.conj())


def test_what_is_not_saved(tmp_path):
    whole = torch.zeros(4, 4)
    for tensors, error, text in (
        ([1], ValueError, "Expected a dict"),
        ({"a": 1}, ValueError, "Key `a` is invalid"),
        ({"a": torch.eye(2).to_sparse()}, ValueError, "sparse"),
        ({"a": whole[:, :2]}, ValueError, "non contiguous tensor: `a`"),
        ({"a": whole, "b": whole[:1]}, RuntimeError, "share memory"),
    ):
        with pytest.raises(error, match=text):
            st_torch.save_file(tensors, tmp_path / "a")
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError):
        st_torch.save({"a": whole}, {"a": 1})


def test_the_original_reads_what_is_written_here(tmp_path):
    """And the other way round, if it is installed."""
    original = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    given = {"b": torch.arange(6.0).view(2, 3), "a": torch.arange(4), "h": torch.ones(3).half(), "none": torch.empty(0, 2)}
    for writer, reader in ((st_torch, original), (original, st_torch)):
        path = tmp_path / f"{writer.__name__}.safetensors"
        writer.save_file(given, path, {"format": "pt"})
        for seen in (reader.load_file(path), reader.load(writer.save(given))):
            assert set(seen) == set(given) and all(torch.equal(seen[name], one) for name, one in given.items())
    for case, data in MALFORMED.items():
        if case not in ("duplicate", "name", "empty name"):  # which the original takes
            with pytest.raises(sys.modules["safetensors"].SafetensorError):
                original.load(data)


def test_storages():
    whole = torch.zeros(4, 4)
    assert st_torch.storage_ptr(whole[1:]) == whole.data_ptr() and st_torch.storage_size(whole[1:]) == 64
    meta = torch.empty(3, device="meta")
    assert st_torch.storage_ptr(meta) == 0 and st_torch.storage_size(meta) == 12


def test_models_with_tied_weights(tmp_path):
    def model(seed):
        torch.manual_seed(seed)
        made = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4, bias=False))
        made[1].weight = made[0].weight
        return made

    path = tmp_path / "m.safetensors"
    st_torch.save_model(model(1), path)
    with safe_open(path, "pt") as opened:
        assert opened.keys() == ["0.weight"] and opened.metadata() == {"1.weight": "0.weight"}
    other = model(2)
    assert st_torch.load_model(other, path) == (set(), []) and torch.equal(other[1].weight, model(1)[0].weight)
    with pytest.raises(RuntimeError, match="Missing key"):
        st_torch.load_model(torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4)), path)
