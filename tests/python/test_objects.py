"""Objects: creating, sealing, versions, bytes, names, attributes, errors."""
import errno
import os
import threading

import pytest
from conftest import leases

import gshm


def test_a_new_object_is_sealed_at_the_end_of_with(client, device):
    with client.create("run7/kv", shape=(4, 8), dtype="bfloat16", device=device) as made:
        made.write(bytes(range(64)))
        assert made.shape == (4, 8) and made.dtype == gshm.dtype("bfloat16") and made.nbytes == 64
        assert made.device == device and made.name == "run7/kv" and made.writable and not made.sealed
    stat = client.stat("run7/kv")
    assert stat.state == "sealed" and stat.id == made.id and stat.size_bytes == 64
    with client.open("run7/kv", wait=5.0) as seen:
        assert seen.shape == (4, 8) and str(seen.dtype) == "bfloat16" and seen.sealed and not seen.writable
        assert seen.read() == bytes(range(64)) and seen.read(60) == bytes(range(60, 64)) and seen.tobytes() == seen.read()
    assert client.holders("run7/kv") == []


def test_it_is_gone_after_an_exception(client):
    with pytest.raises(KeyError, match="reason"):
        with client.create("run7/kv", 10):
            raise KeyError("reason")
    assert not client.exists("run7/kv") and not client.exists("run7")


def test_an_exception_does_not_remove_another_object_of_the_name(client):
    with pytest.raises(KeyError):
        with client.create("a", 10):
            client.rename("a", "b")
            other = client.create("a", 20)
            raise KeyError
    assert client.stat("a").id == other.id


def test_a_new_version_appears_at_once(client):
    with client.create("w", 4) as first:
        first.write(b"old!")
    held = client.open("w")
    with pytest.raises(KeyError):
        with client.create("w", 8, replace=True):
            raise KeyError
    assert client.open("w").read() == b"old!"
    with client.create("w", 8, replace=True) as second:
        second.write(b"new data")
        assert client.open("w").read() == b"old!"
    assert client.open("w").read() == b"new data" and held.read() == b"old!"
    with pytest.raises(gshm.Exists):
        client.create("w", 1)
    with pytest.raises(gshm.Exists):
        with client.create("w", 1, unnamed=True):
            pass
    assert client.open("w").read() == b"new data"
    third = client.create("w", 3, unnamed=True)
    third.publish("other")
    assert third.name == "other" and client.stat("other").state == "sealed"


def test_bytes(client, device):
    made = client.create("bytes", 100, device=device)
    made.fill(7)
    made.write(b"abc", 10)
    made.write(bytearray(b"de"), 13)
    made.write(memoryview(b"xfgx")[1:3], 15)
    made.write(b"")
    assert made.read(9, 9) == b"\x07abcdefg\x07" and made.read(100) == b""
    into = bytearray(3)
    assert made.read_into(into, 10) == 3 and into == b"abc"
    with pytest.raises(gshm.Invalid):
        made.write(b"abc", 98)
    with pytest.raises(gshm.Invalid):
        made.read(0, 101)
    made.seal()
    with pytest.raises(gshm.Denied) as refused:
        made.write(b"abc")
    assert refused.value.errno == errno.EPERM and "sealed" in refused.value.strerror


def test_objects_without_a_mapping(client, device):
    made = client.create("far", 16, device=device, map=False)
    made.write(b"0123456789abcdef")
    assert made.ptr == 0 and made.read(10, 3) == b"abc"
    made.seal()
    assert client.open("far", map=False).read() == b"0123456789abcdef"


def test_empty_objects(client):
    with client.create("empty", (0, 5), "float32") as made:
        assert made.nbytes == 0 and made.read() == b"" and made.tobytes() == b""
    seen = client.open("empty")
    assert seen.shape == (0, 5) and seen.size == 0 and seen.memoryview().nbytes == 0


def test_scalars_have_the_shape_of_no_dimensions(client):
    client.create("scalar", (), "float64", keep=True).close()
    assert client.open("scalar").shape == () and client.open("scalar").nbytes == 8


def test_names(client):
    for name in ("d/a", "d/b", "d/e/c"):
        client.create(name, 10).seal()
    assert [name for name, _ in client.list("d")] == ["a", "b", "e"]
    assert [name for name, _ in client.list("d", recursive=True)] == ["a", "b", "e/c"]
    assert {stat.kind for _, stat in client.list("d")} == {"object", "directory"}
    client.rename("d/a", "d/z")
    with pytest.raises(gshm.Exists):
        client.rename("d/z", "d/b")
    client.rename("d/z", "d/b", replace=True)
    client.link("d/b", "d/again")
    assert client.stat("d/again").id == client.stat("d/b").id
    client.symlink("b", "d/link")
    assert client.read_link("d/link") == "b" and client.open("d/link").size_bytes == 10
    client.make_directory("kept", mode=0o700, device="host")
    assert client.stat("kept").mode & 0o777 == 0o700 and client.stat("kept").device == "host" and client.stat("kept").keep
    client.change("d/b", mode=0o640, keep=True)
    assert client.stat("d/b").mode & 0o777 == 0o640
    errors = client.unlink_many(["d/again", "d/none", "d/link"])
    assert errors[0] is None and isinstance(errors[1], gshm.NotFound) and errors[2] is None
    stats = client.stat_many(["d/b", "nothing"])
    assert stats[0].size_bytes == 10 and isinstance(stats[1], gshm.NotFound)
    assert client.stat_many([]) == [] and client.unlink_many([]) == [] and client.open_many([]) == []
    with pytest.raises(gshm.IsDirectory):
        client.unlink("d")


def test_batches(client, device):
    made = client.create_many(
        [{"name": f"many/{i}", "shape": (i, 2), "dtype": "int32", "device": device} for i in range(1, 5)]
        + [{"name": "many/1", "shape": 1}]
    )
    assert [type(one) for one in made] == [gshm.Object] * 4 + [gshm.Exists]
    assert made[2].shape == (3, 2) and "many/1" in str(made[4])
    for one in made[:4]:
        one.seal()
    found = client.open_many(["many/1", "many/none", "many/4"])
    assert found[0].size_bytes == 8 and isinstance(found[1], gshm.NotFound) and found[2].size_bytes == 32
    assert leases(client, "many/4") == 2


def test_attributes(client):
    client.create("o", (2, 3), "float32", attributes={"model": "llama", "layer": 7}).seal()
    attributes = client.attributes("o")
    assert dict(attributes) == {"dtype": b"float32", "shape": b"2,3", "model": b"llama", "layer": b"7"}
    attributes["raw"] = b"\x00\xff"
    attributes["größe"] = "zwölf"
    assert attributes["raw"] == b"\x00\xff" and attributes["größe"].decode() == "zwölf" and len(attributes) == 6
    assert attributes.read("raw", "none") == {"raw": b"\x00\xff"}
    attributes.write({"a": 1, "b": b""})
    del attributes["a"]
    assert "a" not in attributes and attributes["b"] == b"" and attributes.get("a", b"?") == b"?"
    with pytest.raises(KeyError):
        attributes["a"]
    with pytest.raises(KeyError):
        del attributes["a"]
    with pytest.raises(gshm.NotFound):
        client.attributes("none").read()
    client.make_directory("folder")
    client.attributes("folder")["x"] = "y"
    assert dict(client.attributes("folder")) == {"x": b"y"}


def test_attributes_of_other_programs_tell_the_shape(client):
    for given, shape, kind in (
        ({"dtype": "f32", "shape": "2,3"}, (2, 3), "float32"),
        ({"dtype": "BF16", "shape": "12"}, (12,), "bfloat16"),
        ({"dtype": "F8_E4M3", "shape": "4,6"}, (4, 6), "float8_e4m3fn"),
        ({"dtype": "f64", "shape": "2,3"}, (24,), "uint8"),  # does not fit
        ({"dtype": "quux", "shape": "2,3"}, (24,), "uint8"),
        ({"dtype": "f32", "shape": "2,-3"}, (24,), "uint8"),
        ({"dtype": "f32", "shape": "a"}, (24,), "uint8"),
    ):
        client.create("o", 24, replace=True, attributes=given).publish(replace=True)
        seen = client.open("o")
        assert (seen.shape, str(seen.dtype)) == (shape, kind), given
    assert client.open("o", shape=(3, 2), dtype="float32").shape == (3, 2)
    with pytest.raises(ValueError):
        client.open("o", shape=(7,), dtype="float32")


def test_waiting(client, gshmd):
    with pytest.raises(gshm.Timeout) as late:
        client.wait("soon", "exists", timeout=0.01)
    assert isinstance(late.value, TimeoutError) and late.value.errno == errno.ETIMEDOUT
    with pytest.raises(gshm.Timeout):
        client.open("soon", wait=0.0)
    with pytest.raises(ValueError):
        client.wait("soon", "tomorrow")
    assert client.wait("soon", "gone") is None

    def write():
        with gshm.connect(gshmd.dir) as writer, writer.create("soon", (2,), "int64") as made:
            made.write(b"12345678")

    thread = threading.Thread(target=write)
    thread.start()
    assert client.open("soon", wait=60).read(0, 8) == b"12345678"
    thread.join()
    before = client.stat("soon")
    thread = threading.Thread(target=client.unlink, args=("soon",))
    thread.start()
    gone = client.wait("soon", "gone", timeout=60)
    assert gone is None or gone.id == before.id  # None: removed before the wait began
    thread.join()


def test_a_wait_ends_with_the_object_although_another_has_the_name(client, monkeypatch):
    client.create("a", 1).seal()
    before = client.stat("a").id

    def two_slices(attempt, timeout):
        assert attempt(0) == -errno.ETIMEDOUT
        client.create("a", 1, replace=True).publish(replace=True)
        return attempt(0)

    monkeypatch.setattr("gshm.names.sliced", two_slices)
    assert client.wait("a", "gone").id == before


def test_holders_and_unlinked_memory(client, device):
    with client.create("held", 5000, device=device):
        pass
    first, second = client.open("held"), client.open("held")
    (holder,) = client.holders("held")
    assert holder.pid == os.getpid() and holder.leases == 2 and not holder.writable
    client.unlink("held")
    (left,) = client.unlinked()
    assert left.name == "held" and left.stat.size_bytes == 5000 and left.holders[0].pid == os.getpid()
    first.close()
    second.close()
    assert client.unlinked() == []


def test_the_daemon_and_its_devices(client, gshmd, device):
    client.ping()
    daemon = client.daemon()
    assert gshmd.process is not None and daemon.pid == gshmd.process.pid and daemon.version == gshm.library_version()
    assert client.dir == str(gshmd.dir) and client.instance == daemon.instance != 0 and daemon.mountpoint == ""
    names = [one.name for one in client.devices()]
    assert device in names and "host" in names
    before = next(one for one in client.df() if one.name == device).object_bytes
    made = client.create("a", 100_000, device=device)
    assert next(one for one in client.df() if one.name == device).object_bytes == before + 100_000
    assert any(one.name == "host" for one in gshm.local_devices())
    assert client.mounts() == [] and client.reload() == []
    with pytest.raises(OSError):
        client.mount("/no/such/folder")
    with pytest.raises(OSError):
        client.unmount("/")
    with pytest.raises(gshm.Invalid):
        client.unmount()
    made.close()


def test_errors_have_errno_sentence_and_the_built_in_class(client):
    for call, built_in, code in (
        (lambda: client.open("none"), FileNotFoundError, errno.ENOENT),
        (lambda: client.open("../x"), ValueError, errno.EINVAL),
        (lambda: client.create("a/" + "b" * 300, 1), ValueError, errno.ENAMETOOLONG),
        (lambda: client.create("big", 1 << 50), gshm.Full, errno.ENOSPC),
        (lambda: client.create("x", 1, device="tpu"), OSError, errno.ENODEV),
    ):
        with pytest.raises(built_in) as raised:
            call()
        assert isinstance(raised.value, gshm.Error) and raised.value.errno == code and len(raised.value.strerror) > 10
    for bad in ("a\0b", "\0"):
        with pytest.raises(ValueError, match="NUL"):
            client.open(bad)
    for shape, dtype in (((-1,), "uint8"), ((1,), "int3"), ((1,), 7)):
        with pytest.raises((ValueError, TypeError)):
            client.create("x", shape, dtype)
    assert client.list() == []


def test_closed_handles(client):
    made = client.create("a", 8)
    made.close()
    made.close()
    for use in (made.seal, made.read, made.numpy, lambda: made.ptr, lambda: made.view("uint8")):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(made)
    other = gshm.connect(client.dir)
    held = other.create("b", 8)
    other.close()
    with pytest.raises(ValueError, match="closed"):
        other.ping()
    held.write(b"12345678")  # an object outlives its client


def test_no_daemon():
    with pytest.raises(gshm.NotRunning) as raised:
        gshm.connect("/tmp/gshm-python.none", timeout=0)
    assert isinstance(raised.value, ConnectionRefusedError) and "start it with `gshmd --dir" in str(raised.value)


def test_the_rights_of_sealed_and_of_read_only_objects(client):
    made = client.create("a", 8)
    writer = client.open("a", write=True)
    reader = client.open("a")
    with pytest.raises(gshm.Denied):
        reader.write(b"x")
    with pytest.raises(gshm.Denied):
        reader.seal()
    writer.write(b"abcdefgh")
    made.seal()
    assert reader.sealed and reader.read() == b"abcdefgh"
    with pytest.raises(gshm.Denied):
        client.open("a", write=True)


def test_an_error_has_the_name_once(client):
    with pytest.raises(gshm.NotFound) as raised:
        client.open("none/such")
    assert str(raised.value).count("none/such") == 1 and raised.value.filename == "none/such"


def test_text_with_a_nul_is_refused(client, gshmd, device, tmp_path):
    """The C interface ends strings there, so another name would be meant."""
    made = client.create("a", 8, device=device, keep=True)
    for call in (
        lambda: client.create("a\0b", 8),
        lambda: client.create("b", 8, device="host\0"),
        lambda: client.create("b", 8, attributes={"a\0": 1}),
        lambda: client.create_many([{"name": "a\0b", "shape": 8}]),
        lambda: client.open("a\0b"),
        lambda: client.open_many(["a", "a\0b"]),
        lambda: client.open_path("/a\0b"),
        lambda: client.stat("a\0b"),
        lambda: client.stat_many(["a\0b"]),
        lambda: client.exists("a\0b"),
        lambda: client.list("\0"),
        lambda: client.holders("a\0"),
        lambda: client.unlink("a\0"),
        lambda: client.unlink_many(["a\0"]),
        lambda: client.rename("a", "b\0"),
        lambda: client.rename("a\0", "b"),
        lambda: client.link("a", "b\0"),
        lambda: client.symlink("a\0", "b"),
        lambda: client.read_link("a\0"),
        lambda: client.make_directory("d\0"),
        lambda: client.make_directory("d", device="host\0"),
        lambda: client.change("a\0", mode=0o600),
        lambda: client.move("a", "host\0"),
        lambda: client.seal("a\0"),
        lambda: client.attributes("a\0").read(),
        lambda: client.attributes("a").read("b\0"),
        lambda: client.attributes("a").write({"b\0": 1}),
        lambda: client.attributes("a").__setitem__("b\0", 1),
        lambda: client.attributes("a").__delitem__("b\0"),
        lambda: client.wait("a\0", timeout=0),
        lambda: client.watch("a\0"),
        lambda: client.put(tmp_path / "f", "a\0"),
        lambda: client.get("a\0", tmp_path / "f"),
        lambda: client.mount(f"{tmp_path}/m\0"),
        lambda: client.mount(str(tmp_path), subdirectory="a\0"),
        lambda: client.mount(str(tmp_path), source="a\0"),
        lambda: client.unmount(f"{tmp_path}/m\0"),
        lambda: client.pool("host\0"),
        lambda: client.pool(device, name="p\0"),
        lambda: made.publish("b\0"),
        lambda: made.map_peer("cuda:0\0"),
        lambda: gshm.connect(f"{gshmd.dir}\0"),
        lambda: gshm.find_daemon(f"{gshmd.dir}\0"),
        lambda: gshm.allocate(8, device="host\0"),
        lambda: gshm.load(tmp_path / "f", device, client=client, name="a\0"),
        lambda: gshm.load(tmp_path / "f", "host\0", client=client),
        lambda: gshm.unload("a\0", client=client),
        lambda: gshm.snapshot(f"{tmp_path}\0"),
    ):
        with pytest.raises(ValueError, match="NUL|null byte"):
            call()
    assert [name for name, _ in client.list()] == ["a"]
