"""gshm.load: safetensors files, once for all processes."""
import json
import os
import subprocess
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
from conftest import Rounds, leases, run_python
from files import ACCEPTED, MALFORMED, SIZES, content, make, make_folder, raw, size_of

import gshm
from gshm.loads import device_for
from gshm.tables import Table

TENSORS = {"w": ("F32", (4, 6)), "b.weight": ("BF16", (3,)), "scalar": ("I64", ()), "none": ("F16", (0, 4)), "flag": ("BOOL", (5,))}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(make(TENSORS, {"format": "pt"}))
    return path


def expect(name, kind, shape):
    return content(name, size_of(kind, shape), kind)


def test_a_file_is_read_once(client, device, file):
    calls = []
    first = gshm.load(file, device, client=client, progress=lambda *done: calls.append(done))
    assert set(first) == set(TENSORS) and first.read_bytes > 0 and not first.parts[0].shared
    for name, (kind, shape) in TENSORS.items():
        assert first[name].shape == shape and first[name].tobytes() == expect(name, kind, shape), name
        assert first[name].nbytes == 0 or first[name].ptr % 256 == 0
    assert first["b.weight"].dtype.name == "bfloat16" and first.metadata == {"format": "pt"}
    assert calls[-1][0] == calls[-1][1] > 0
    second = gshm.load(file, device, client=client)
    assert second.read_bytes == 0 and second.parts[0].shared and second.parts[0].object.id == first.parts[0].object.id
    assert second["w"].tobytes() == first["w"].tobytes() and not second["w"].writable
    name = second.parts[0].object.name
    assert name.startswith(f"loaded-{os.getuid()}/") and leases(client, name) == 2
    assert json.loads(client.attributes(name)["gshm.tensors"])["tensors"] == len(TENSORS)
    del first, second
    assert leases(client, name) == 0
    assert gshm.load(file, device, client=client, existing=True).read_bytes == 0


def test_other_packages_take_the_arrays(client, on_host, file):
    import torch

    model = gshm.load(file, "host", client=client)
    assert numpy.asarray(model["w"]).tobytes() == expect("w", "F32", (4, 6)) and not numpy.asarray(model["w"]).flags.writeable
    assert torch.from_dlpack(model["w"]).shape == (4, 6) and model["flag"].torch().dtype == torch.bool
    tensors = gshm.torch.load(file, "cpu", client=client)
    assert torch.equal(tensors["w"], torch.from_dlpack(model["w"])) and tensors["none"].shape == (0, 4)
    assert tensors["scalar"].shape == () and tensors["b.weight"].dtype == torch.bfloat16
    assert tensors.read_bytes == 0 and tensors.parts[0].shared and tensors.metadata == {"format": "pt"}
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.zeros(4, 6))
    module.load_state_dict({"w": tensors["w"]})
    assert torch.equal(module.w, tensors["w"])


def test_one_lease_for_all_tensors_of_torch(client, on_host, file):
    tensors = gshm.torch.load(file, "cpu", client=client, name="m")
    assert leases(client, "m") == 1
    kept = tensors["flag"]
    del tensors
    assert leases(client, "m") == 1
    del kept
    assert leases(client, "m") == 0


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_every_type(client, device, tmp_path, kind):
    import torch

    from gshm.tables import TYPES

    path = tmp_path / "a.safetensors"
    path.write_bytes(make({"a": (kind, (2, 3)), "b": (kind, (1,))}))
    model = gshm.load(path, device, client=client)
    assert model["a"].dtype.name == TYPES[kind][1] and model["a"].tobytes() == expect("a", kind, (2, 3))
    if device != "host":
        return
    if hasattr(torch, TYPES[kind][1]):
        seen = gshm.torch.load(path, "cpu", client=client)["a"]
        assert seen.shape == (2, 3) and str(seen.dtype) == f"torch.{TYPES[kind][1]}"
        assert seen.contiguous().view(torch.uint8).numpy().tobytes() == expect("a", kind, (2, 3))
    else:
        with pytest.raises(TypeError, match=f"a: torch .* has no type for {kind}"):
            gshm.torch.load(path, "cpu", client=client)


def test_a_changed_file_is_a_new_version(client, device, file):
    old = gshm.load(file, device, client=client, name="m")
    file.write_bytes(make({"w": ("U8", (7,))}))
    new = gshm.load(file, device, client=client, name="m")
    assert list(new) == ["w"] and new["w"].tobytes() == expect("w", "U8", (7,)) and new.read_bytes > 0
    assert old["w"].tobytes() == expect("w", "F32", (4, 6)), "a holder keeps the old one"
    assert client.open("m").id == new.parts[0].object.id


def test_unload_removes_what_is_loaded_and_nothing_else(client, device, file):
    model = gshm.load(file, device, name="m/a", client=client)
    with client.create("m/other", (4,), device=device):
        pass
    assert gshm.unload("m", client=client) == [part.object.name for part in model.parts]
    assert [name for name, _ in client.list("m")] == ["other"]
    assert all(one.tobytes() for one in model.values() if one.nbytes)  # its holder keeps it
    for name, error in [("m", gshm.NotFound), ("m/other", gshm.NotFound), ("missing", gshm.NotFound)]:
        with pytest.raises(error):
            gshm.unload(name, client=client)
    client.create("m/deep/x", (4,), device=device, keep=True).close()
    client.unlink("m", recursive=True)
    assert not client.exists("m")


def test_a_folder_with_its_index(client, device, tmp_path):
    shards = [{"a": ("F32", (8,)), "layers.0.w": ("F16", (2, 2))}, {"layers.1.w": ("F16", (2, 2)), "z": ("U8", (3,))}]
    folder = make_folder(tmp_path / "llama", shards)
    (folder / "unused.safetensors").write_bytes(make({"other": ("U8", (1,))}))
    model = gshm.load(folder, device, client=client, name="models/llama")
    assert sorted(model) == ["a", "layers.0.w", "layers.1.w", "z"] and len(model.parts) == 2
    assert [name for name, _ in client.list("models/llama")] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert model["layers.1.w"].tobytes() == expect("layers.1.w", "F16", (2, 2))
    again = gshm.load(str(folder) + "/", device, client=client, name="models/llama")
    assert again.read_bytes == 0
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../evil.safetensors"}}))
    with pytest.raises(gshm.Error, match="evil"):
        gshm.load(folder, device, client=client)


def test_filter_slice_and_device_map(client, device, file):
    part = gshm.load(file, device, client=client, filter=lambda name: name != "w")
    assert sorted(part) == sorted(set(TENSORS) - {"w"})
    rows = gshm.load(file, device, client=client, slice={"w": (0, 1, 3)})
    whole = expect("w", "F32", (4, 6))
    assert rows["w"].shape == (2, 6) and rows["w"].tobytes() == whole[24:72] and rows["b.weight"].shape == (3,)
    columns = gshm.load(
        file, device, client=client, filter=lambda name: name == "w",
        slice=lambda name, shape: (1, shape[1] // 2, shape[1]) if len(shape) == 2 else None,
    )  # fmt: skip
    expected = numpy.frombuffer(whole, "f4").reshape(4, 6)[:, 3:].tobytes()
    assert columns["w"].shape == (4, 3) and columns["w"].tobytes() == expected and columns.read_bytes <= 4096
    mapped = gshm.load(file, None, client=client, device_map={"": "host", "b": device})
    assert mapped["w"].tobytes() == whole and {one.object.device for one in mapped.parts} == {"host", device}
    with pytest.raises(ValueError, match="no device for"):
        gshm.load(file, device, client=client, device_map={"b": device})
    with pytest.raises(ValueError, match="nope"):
        gshm.load(file, device, client=client, slice={"nope": (0, 0, 1)})
    assert device_for("a.b.c", {"": 0, "a": 1, "a.b": 2}) == 2 and device_for("ab.c", {"": 0, "a": 1}) == 0


@pytest.mark.parametrize("part", [
    (-1, 0, 1), (2, 0, 1), (2**32 - 1, 0, 1), (0, 1, 5), (0, -1, 2), (0, 3, 2), (0, 2**64, 2**64 + 1), (0, 0, 2**64 + 1),
    (0, 1), (0, 0.5, 1), "abc",
])  # fmt: skip
def test_a_slice_that_does_not_fit_is_refused(client, device, file, part):
    with pytest.raises(ValueError, match="the slice .* of w "):
        gshm.load(file, device, client=client, slice={"w": part})
    assert client.list() == []


def test_paths_with_a_null_byte_are_refused(client, device, file):
    for call in (
        lambda path: gshm.load(path, device, client=client),
        lambda path: gshm.load(path, device, client=client, filter=bool),
        lambda path: client.put(path, "a"),
        lambda path: client.get("a", path),
    ):
        with pytest.raises(ValueError, match="embedded null byte"):
            call(f"{file}\0.txt")


def test_half_bytes_are_not_dropped(client, device, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw('{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}', b"abc"))
    with pytest.raises(ValueError, match="a: rows of 3 numbers of F4"):
        gshm.load(path, device, client=client)


@hypothesis.settings(max_examples=20, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
def test_any_shapes_and_slices(client, device, tmp_path_factory, data):
    shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)
    tensors = data.draw(st.dictionaries(
        st.text("abc.xyz-_é", min_size=1, max_size=8).filter(lambda name: name not in (".", "..")),
        st.tuples(st.sampled_from(["U8", "F16", "F32", "I64"]), shapes), min_size=1, max_size=5,
    ))  # fmt: skip
    slices = {}
    for name, (_, shape) in tensors.items():
        if shape and data.draw(st.booleans()):
            dim = data.draw(st.integers(0, len(shape) - 1))
            begin = data.draw(st.integers(0, shape[dim]))
            slices[name] = (dim, begin, data.draw(st.integers(begin, shape[dim])))
    path = tmp_path_factory.mktemp("any") / "a.safetensors"
    path.write_bytes(make(tensors))
    seen = gshm.load(path, device, client=client, slice=slices)
    for name, (kind, shape) in tensors.items():
        array = numpy.frombuffer(expect(name, kind, shape), {"U8": "u1", "F16": "f2", "F32": "f4", "I64": "i8"}[kind]).reshape(shape)
        if name in slices:
            dim, begin, end = slices[name]
            array = array[(slice(None),) * dim + (slice(begin, end),)]
        assert seen[name].shape == array.shape and seen[name].tobytes() == array.tobytes(), name
    for part in seen.parts:
        client.unlink(part.object.name)


@hypothesis.given(
    st.dictionaries(st.text("abcdef.", min_size=1, max_size=9).filter(lambda name: name not in (".", "..")),
                    st.tuples(st.sampled_from(sorted(SIZES)), st.lists(st.integers(0, 5), max_size=3).map(tuple)), max_size=6),
    st.dictionaries(st.text(max_size=5).filter(lambda t: "\0" not in t and t.isprintable()), st.text(max_size=5).filter(str.isprintable), max_size=3),
    st.booleans(),
)  # fmt: skip
def test_headers_are_made_and_read(tensors, metadata, as_file):
    from gshm.tables import Tensor

    made = Table.layout([Tensor(name, *one) for name, one in tensors.items()], metadata, file=as_file)
    assert made.metadata == metadata and {one.name: (one.dtype, one.shape) for one in made.tensors} == tensors
    assert all(one.nbytes == size_of(one.dtype, one.shape) for one in made.tensors)
    if as_file:
        data = made.header + bytes(made.size - len(made.header))
        assert Table.of_memory(data).tensors == made.tensors
        described = json.loads(made.header[8:])
        assert described.pop("__metadata__", {}) == metadata and set(described) == set(tensors)
    else:
        assert all(one.offset % 256 == 0 for one in made.tensors)


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_malformed_files_are_refused(client, device, tmp_path, case):
    path = tmp_path / "a.safetensors"
    path.write_bytes(MALFORMED[case])
    with pytest.raises(OSError) as raised:
        gshm.load(path, device, client=client)
    assert isinstance(raised.value, gshm.Error) and raised.value.strerror
    assert client.list() == []


@pytest.mark.parametrize("case", sorted(ACCEPTED))
def test_unusual_files_are_accepted(client, device, tmp_path, case):
    path = tmp_path / "a.safetensors"
    path.write_bytes(ACCEPTED[case])
    gshm.load(path, device, client=client)
    with pytest.raises(FileNotFoundError):
        gshm.load(tmp_path / "none", device, client=client)


LOADER = """
import os, sys, gshm
c = gshm.connect(sys.argv[1], timeout=30)
sys.stdin.readline()
m = gshm.load(sys.argv[2], sys.argv[3], client=c)
print(m.read_bytes, sum(map(sum, (one.tobytes() for one in m.values()))), flush=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_racing_loaders_read_once(client, gshmd, device, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(make({f"t{n}": ("U8", (100_000,)) for n in range(10)}))
    running = [start(LOADER, gshmd.dir, path, device) for _ in range(4)]
    results = [one.communicate("\n")[0].split() for one in running]
    assert len({total for _, total in results}) == 1
    assert sorted(int(read) > 0 for read, _ in results) == [False, False, False, True]


KILLED = """
import os, sys, gshm
def die(done, total):
    if not 0 < done < total: return
    print("loading", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), 9)
gshm.load(sys.argv[2], sys.argv[3], client=gshm.connect(sys.argv[1]), progress=die)
"""


def test_a_killed_loader_leaves_nothing_and_the_next_takes_over(client, gshmd, device, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(make({f"t{n}": ("U8", (5_000,)) for n in range(300)}))  # more than are read between two calls
    first = start(KILLED, gshmd.dir, path, device)
    assert first.stdout.readline() == "loading\n"
    assert [".loading-" in name for name, _ in client.list(recursive=True)] == [True], "the name is claimed"
    second = start(LOADER, gshmd.dir, path, device)
    second.stdin.write("\n")
    second.stdin.flush()
    first.communicate("\n")
    assert first.returncode == -9
    read, total = second.communicate()[0].split()
    assert int(read) >= 1_500_000 and int(total) == sum(sum(content(f"t{n}", 5_000)) for n in range(300))
    names = [name for name, _ in client.list(recursive=True)]
    assert len(names) == 1 and "loading" not in names[0]


def test_an_exception_of_progress_ends_the_load(client, device, file):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gshm.load(file, device, client=client, progress=stop)
    assert client.list() == []
    assert gshm.load(file, device, client=client).read_bytes > 0


def test_a_daemon_is_killed_under_loads(client, gshmd, device, tmp_path):
    """A load succeeds, or says that the connection was lost; the next one succeeds."""
    path = tmp_path / "a.safetensors"
    work = Rounds()

    def repeat():
        number = 0
        while not work.over:
            number += 1
            fresh = tmp_path / f"{threading.get_ident()}-{number}.safetensors"
            fresh.write_bytes(make({"a": ("U8", (50_000 + number,))}))
            try:
                seen = gshm.load(fresh, device, client=client, name=f"m/{fresh.name}")
                if seen["a"].tobytes() != content("a", 50_000 + number):
                    work.fail("other bytes")
                work.done("load")
                del seen
                client.unlink(f"m/{fresh.name}")
            except (gshm.ConnectionLost, gshm.Stale, gshm.NotFound):
                pass  # in progress when the daemon died
            except BaseException as error:
                work.fail(error)
                return
            fresh.unlink()

    threads = [threading.Thread(target=repeat) for _ in range(2)]
    for one in threads:
        one.start()
    for _ in range(3):
        gshmd.kill()
        gshmd.start()
        work.wait_for(["load"], 4)
    work.over = True
    for one in threads:
        one.join()
    assert work.failures == []
    path.write_bytes(make(TENSORS))
    assert gshm.load(path, device, client=client)["w"].tobytes() == expect("w", "F32", (4, 6))


def test_no_daemon_is_a_clear_error(gshmd, file):
    ended = run_python(f"import gshm; gshm.load({str(file)!r})")
    assert ended.returncode == 1 and "gshmd" in ended.stderr.splitlines()[-1]


def test_the_progress_bar(capfd):
    import io

    from gshm.bars import Bar, bar_for

    stream = io.StringIO()
    bar = Bar("llama", stream)
    bar(0, 100)
    bar.close()
    assert stream.getvalue() == "", "not for a moment's work"
    bar._next = 0
    bar(5_000_000_000, 10_000_000_000)
    bar.close()
    assert "llama [###############...............] 5.0/10.0 GB" in stream.getvalue() and stream.getvalue().endswith("\n")
    assert bar_for(None, "x") is None and bar_for(False, "x") is None and isinstance(bar_for(True, "x"), Bar)
    assert bar_for(print, "x") is print
