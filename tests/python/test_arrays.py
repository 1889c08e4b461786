"""Arrays: DLPack, NumPy, torch, the buffer protocol, views and copies."""
import ctypes

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
import torch
from consumer import Taken, look, name

import gshm
from gshm.arrays import CPU, CUDA, product

NUMPY_TYPES = [one.name for one in gshm.DTYPES.values() if one.typestr]
DL_DEVICE = {"host": (CPU, 0), "cuda:0": (CUDA, 0)}


def test_dlpack_structs(client, device):
    made = client.create("a", (2, 3, 4), "bfloat16", device)
    assert made.__dlpack_device__() == DL_DEVICE[device]
    for max_version, expected in ((None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned")):
        capsule = made.__dlpack__(max_version=max_version)
        assert name(capsule) == expected
        seen = look(capsule)
        tensor = seen.tensor
        assert tensor.data == made.ptr and (tensor.device_type, tensor.device_id) == DL_DEVICE[device]
        assert tensor.ndim == 3 and tensor.shape[:3] == [2, 3, 4] and tensor.strides[:3] == [12, 4, 1]
        assert (tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (4, 16, 1, 0)
        if max_version == (1, 0):
            assert (seen.major, seen.minor, seen.flags) == (1, 1, 0)
    made.seal()
    assert look(made.__dlpack__(max_version=(1, 1))).flags == 1
    assert look(client.open("a").__dlpack__(max_version=(1, 1))).flags == 1
    copied = look(client.open("a").__dlpack__(max_version=(1, 1), copy=True))
    assert copied.flags == 2 and copied.tensor.data != made.ptr


def test_float8_is_bytes_for_consumers_that_have_no_code_for_it(client, device):
    made = client.create("a", (4, 2), "float8_e4m3fn", device)
    assert look(made.__dlpack__()).tensor.code == 1
    assert look(made.__dlpack__(max_version=(1, 0))).tensor.code == 1
    assert look(made.__dlpack__(max_version=(1, 1))).tensor.code == 10


def test_streams_and_devices_that_are_not_to_be_had(client, device):
    made = client.create("a", 8, device=device)
    with pytest.raises(BufferError):
        made.__dlpack__(stream=0)
    with pytest.raises(BufferError):
        made.__dlpack__(dl_device=(2, 7))
    made.__dlpack__(stream=-1)
    if device == "host":
        with pytest.raises(BufferError):
            made.__dlpack__(stream=1)
        made.__dlpack__(dl_device=(1, 0), copy=False)
        return
    for stream in (None, 1, 2):
        made.__dlpack__(stream=stream)
    with pytest.raises(BufferError):
        made.__dlpack__(dl_device=(1, 0), copy=False)
    made.write(b"abcdefgh")
    here = Taken(made.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    assert here.tensor.device_type == CPU and here.managed.flags == 2
    assert ctypes.string_at(here.tensor.data, 8) == b"abcdefgh"
    here.delete()


def test_objects_without_a_mapping_have_no_tensors(client, device):
    far = client.create("far", 8, device=device, map=False)
    for use in (far.__dlpack__, far.__dlpack_device__):
        with pytest.raises(gshm.Unsupported):
            use()


def test_copies_are_private(client, device):
    made = client.create("a", (2, 4), "uint8", device)
    made.write(b"abcdefgh")
    copy = made.copy()
    made.fill(0)
    assert copy.tobytes() == b"abcdefgh" and copy.writable and copy.shape == (2, 4) and copy.ptr != made.ptr
    assert copy.__dlpack_device__() == DL_DEVICE[device]
    assert made.view(shape=(3,), offset=2).copy().tobytes() == bytes(3)


def test_views(client, device):
    made = client.create("a", (4, 4), "float32", device)
    made.write(bytes(range(64)))
    row = made.view(shape=(4,), offset=16)
    assert row.tobytes() == bytes(range(16, 32)) and row.ptr == made.ptr + 16 and row.offset == 16
    assert look(row.__dlpack__()).tensor.data == made.ptr + 16 and look(row.__dlpack__()).tensor.byte_offset == 0
    assert made.view("uint8").shape == (64,) and made.view("int32").shape == (4, 4)
    assert row.view("uint16").shape == (8,) and row.view("uint8", 2, offset=14).tobytes() == b"\x1e\x1f"
    for arguments in ({"shape": (17,)}, {"offset": 65}, {"offset": -1}, {"shape": (4,), "offset": 52}):
        with pytest.raises(ValueError):
            made.view(**arguments)
    assert made.view("float64", (0, 7), offset=64).nbytes == 0
    made.seal()
    assert look(made.view("uint8").__dlpack__(max_version=(1, 0))).flags == 1


@pytest.mark.parametrize("kind", NUMPY_TYPES)
def test_numpy_takes_every_type_it_has(client, on_host, kind):
    with client.create("a", (3, 4), kind) as made:
        array = made.numpy()
        assert array.dtype == numpy.dtype(kind) and array.shape == (3, 4) and array.flags.writeable
        array[...] = numpy.arange(12).reshape(3, 4) % 2 if kind == "bool" else numpy.arange(12).reshape(3, 4)
    seen = numpy.asarray(client.open("a"))
    assert not seen.flags.writeable and (seen == array).all() and seen.ctypes.data != 0
    with pytest.raises(ValueError):
        seen[0] = 1
    if kind != "bool":  # NumPy 1.24 does not take bool by DLPack
        assert (numpy.from_dlpack(client.open("a")) == array).all()


@pytest.mark.parametrize("kind", sorted(gshm.DTYPES))
def test_torch_takes_every_type_it_has(client, on_host, kind):
    with client.create("a", (3, 4), kind) as made:
        made.write(bytes([0, 1]) * (made.nbytes // 2))
    seen = client.open("a")
    if not hasattr(torch, kind):
        with pytest.raises(TypeError, match="torch"):
            seen.torch()
        assert seen.view("uint8").torch().numel() == made.nbytes
        return
    tensor = seen.torch()
    assert tensor.dtype == getattr(torch, kind) and tuple(tensor.shape) == (3, 4)
    assert tensor.data_ptr() == seen.ptr  # no copy
    again = seen.copy().torch()
    assert again.data_ptr() != seen.ptr
    again.zero_()
    assert bytes(seen.read()) == bytes([0, 1]) * (made.nbytes // 2)


def test_torch_writes_into_the_object(client, on_host):
    with client.create("run7/kv", shape=(16, 8), dtype="bfloat16") as made:
        torch.from_dlpack(made).fill_(7)
    tensor = torch.from_dlpack(client.open("run7/kv", wait=5.0))
    assert tensor.dtype == torch.bfloat16 and (tensor == 7).all()


def test_types_that_numpy_lacks(client, on_host):
    made = client.create("a", (2, 2), "bfloat16")
    assert not hasattr(made, "__array_interface__")
    with pytest.raises(TypeError, match="ml_dtypes"):
        made.numpy()
    assert made.view("uint16").numpy().shape == (2, 2)


def test_interfaces_belong_to_their_device(client, device):
    made = client.create("a", (2, 3), "float32", device)
    assert hasattr(made, "__array_interface__") == (device == "host")
    assert hasattr(made, "__cuda_array_interface__") == (device != "host")
    if device == "host":
        return
    expected = {"shape": (2, 3), "typestr": "<f4", "data": (made.ptr, False), "strides": None, "version": 3, "stream": None}
    assert made.__cuda_array_interface__ == expected
    made.seal()
    assert client.open("a").__cuda_array_interface__["data"][1] is True
    with pytest.raises(BufferError):
        made.memoryview()
    with pytest.raises(BufferError):
        made.numpy()
    assert not hasattr(client.create("b", 4, "bfloat16", device), "__cuda_array_interface__")


def test_memoryviews(client, on_host):
    made = client.create("a", (2, 3), "int32")
    view = made.memoryview()
    assert view.shape == (2, 3) and view.format == "i" and not view.readonly
    view[1, 2] = -5
    made.close()
    assert view[1, 2] == -5 and view.tolist() == [[0, 0, 0], [0, 0, -5]]
    made = client.create("b", (), "float64")
    assert made.memoryview().shape == () and made.memoryview().nbytes == 8
    made.seal()
    with pytest.raises(TypeError):
        client.open("b").memoryview()[()] = 1.0
    assert client.create("c", 3, "bfloat16").memoryview().shape == (6,)


def test_private_memory_and_memory_of_others(on_host):
    made = gshm.allocate((2, 2), "float32")
    made.numpy()[...] = 3
    assert torch.from_dlpack(made).sum() == 12
    array = numpy.arange(4, dtype="int32")
    wrapped = gshm.wrap(array)
    assert wrapped.tobytes() == array.tobytes() and wrapped.view("int32").numpy()[2] == 2
    wrapped.numpy()[0] = 9
    assert array[0] == 9
    tensor = torch.ones(3, dtype=torch.bfloat16)
    assert gshm.wrap(tensor).nbytes == 6
    assert gshm.wrap(array.ctypes.data, 4).tobytes() == array[:1].tobytes()
    for bad in (array[::2], tensor[None].expand(2, 3).T):
        with pytest.raises(ValueError):
            gshm.wrap(bad)
    for bad in ("text", 7):
        with pytest.raises(TypeError):
            gshm.wrap(bad)


def test_dtypes():
    for given in ("float32", "f32", "F32", "<f4", numpy.float32, numpy.dtype("float32"), torch.float32, gshm.dtype("f32")):
        assert gshm.dtype(given).name == "float32", given
    assert gshm.dtype(torch.bfloat16).name == "bfloat16" and gshm.dtype("F8_E5M2").name == "float8_e5m2"
    for bad in ("float", "f33", None, 4, "", object):
        with pytest.raises(TypeError):
            gshm.dtype(bad)


shapes = st.lists(st.integers(0, 6), max_size=5).map(tuple)


@hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(shape=shapes, kind=st.sampled_from(NUMPY_TYPES))
def test_every_shape(client, on_host, shape, kind):
    with client.create("shape", shape, kind, replace=True) as made:
        made.fill(1)
    seen = client.open("shape")
    assert seen.shape == shape and seen.size == product(shape) and seen.ndim == len(shape)
    array = numpy.asarray(seen)
    assert array.shape == shape and array.nbytes == seen.nbytes and array.tobytes() == bytes([1]) * seen.nbytes
    assert seen.memoryview().nbytes == seen.nbytes
    tensor = look(seen.__dlpack__()).tensor
    assert tuple(tensor.shape[: len(shape)]) == shape
    expected = numpy.zeros([max(one, 1) for one in shape], kind).strides
    assert tuple(one * seen.itemsize for one in tensor.strides[: len(shape)]) == expected
    if kind != "bool" and seen.size:
        assert numpy.from_dlpack(seen).tobytes() == array.tobytes()


@hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
def test_every_view(client, on_host, data):
    if not client.exists("bytes"):
        with client.create("bytes", 240) as made:
            made.write(bytes(range(240)))
    whole = client.open("bytes")
    offset = data.draw(st.integers(0, 240))
    kind = gshm.dtype(data.draw(st.sampled_from(sorted(gshm.DTYPES))))
    shape = data.draw(shapes)
    if offset + product(shape) * kind.itemsize > 240:
        with pytest.raises(ValueError):
            whole.view(kind, shape, offset)
        return
    view = whole.view(kind, shape, offset)
    assert view.tobytes() == bytes(range(240))[offset : offset + view.nbytes]
