"""Files: put, get, transfers of ranges, rings, asyncio."""
import asyncio
import os
import threading

import pytest

import gshm

DATA = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


def test_put_and_get(client, device, file, tmp_path):
    seen = []
    done = client.put(file, "w", device=device, verify=True, attributes={"k": "v"}, progress=lambda *at: seen.append(at))
    assert done.bytes == len(DATA) and done.seconds > 0 and done.paths and seen[-1] == (len(DATA), len(DATA))
    assert client.stat("w").state == "sealed" and client.attributes("w")["k"] == b"v"
    assert client.open("w").read() == DATA
    assert client.get("w", tmp_path / "copy", verify=True).bytes == len(DATA)
    assert (tmp_path / "copy").read_bytes() == DATA
    with pytest.raises(gshm.Exists):
        client.put(file, "w")
    with open(file, "rb") as stream:
        stream.seek(1000)
        client.put(stream, "w", replace=True)
    assert client.open("w").read() == DATA[1000:]
    with pytest.raises(gshm.NotFound):
        client.put(tmp_path / "none", "x")
    with pytest.raises(gshm.NotFound):
        client.get("none", tmp_path / "x")


def test_put_from_a_pipe(client, device):
    reading, writing = os.pipe()

    def feed():
        with os.fdopen(writing, "wb") as stream:
            stream.write(DATA)

    thread = threading.Thread(target=feed)
    thread.start()
    assert client.put(reading, "piped", device=device).bytes == len(DATA)
    thread.join()
    os.close(reading)
    assert client.open("piped").read() == DATA


def test_an_exception_of_the_progress_function_ends_the_transfer(client, file):
    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        client.put(file, "w", progress=stop)
    assert not client.exists("w")


def test_ranges_of_files(client, device, file, tmp_path):
    made = client.create("part", 1000, device=device)
    assert made.read_file(file, offset=100, file_offset=256, size=512).bytes == 512
    assert made.read() == bytes(100) + DATA[256:768] + bytes(388)
    made.write_file(tmp_path / "out", offset=100, size=512)
    assert (tmp_path / "out").read_bytes() == DATA[256:768]
    with pytest.raises(gshm.Error) as early:
        made.read_file(file, file_offset=len(DATA) - 10)
    assert early.value.errno == 61  # ENODATA
    with open(file, "rb") as stream:
        made.read_file(stream, size=10)
    assert made.read(0, 10) == DATA[:10]


def test_rings(client, device, file, tmp_path):
    with client.ring(8) as ring:
        assert ring.entries == 8
        source = ring.add_file(file)
        target = ring.add_file(tmp_path / "out", write=True)
        parts = [client.create(f"p{i}", 4096, device=device) for i in range(4)]
        for i, part in enumerate(parts):
            ring.read(source, 4096 * i, part, data=("read", i))
        assert ring.in_flight == 4 and ring.submit() == 4
        done = []
        while len(done) < 4:
            done += ring.wait(1)
        assert sorted(one.data for one in done) == [("read", i) for i in range(4)] and ring.in_flight == 0
        assert all(one.result == 4096 and one.error is None and one.paths for one in done)
        assert b"".join(part.read() for part in parts) == DATA[:16384]
        ring.write(target, 0, [(parts[0], 10, 20), parts[1].view(shape=100), parts[2]])
        ring.submit()
        (one,) = ring.wait()
        assert one.result == 20 + 100 + 4096
        assert (tmp_path / "out").read_bytes() == DATA[10:30] + DATA[4096:4196] + DATA[8192:12288]
        ring.read(source, len(DATA) - 5, (parts[0], 0, 10), data="end")
        ring.submit()
        assert ring.wait()[0][:2] == ("end", 5) and ring.wait(0) == []
        with pytest.raises(gshm.Error):
            ring.read(99, 0, parts[0])
        with pytest.raises(gshm.Invalid):
            ring.read(source, 0, (parts[0], 0, 4097))
        for _ in range(8):
            ring.read(source, 0, parts[0])
        with pytest.raises(OSError) as full:
            ring.read(source, 0, parts[0])
        assert full.value.errno == 11  # EAGAIN
        ring.submit()
        assert len(ring.wait(8)) == 8
        ring.remove_file(source)
    with pytest.raises(ValueError):
        ring.submit()


def test_a_wait_of_a_ring_ends_with_it(client, file):
    ring = client.ring()
    assert ring.wait(1, timeout=0.01) == []
    thread = threading.Thread(target=lambda: ring.wait(1))
    thread.start()
    ring.close()
    thread.join()


def test_asyncio(client, device, file, tmp_path):
    async def work():
        parts = [client.create(f"p{i}", 8192, device=device) for i in range(64)]
        async with client.async_ring(16) as ring:
            source = ring.add_file(file)
            counts = await asyncio.gather(*[ring.read(source, 8192 * i, part) for i, part in enumerate(parts)])
            assert counts == [8192] * 64
            target = ring.add_file(tmp_path / "out", write=True)
            assert await ring.write(target, 0, parts) if len(parts) <= 16 else True
            await asyncio.gather(*[ring.write(target, 8192 * i, part) for i, part in enumerate(parts)])
            with pytest.raises(gshm.Invalid):
                await ring.read(source, 0, (parts[0], 0, 1 << 40))
        assert (tmp_path / "out").read_bytes() == DATA[: 64 * 8192]

    asyncio.run(work())


def test_a_failed_wait_ends_all_transfers_and_the_next_succeed(client, device, file):
    async def work():
        parts = [client.create(f"p{i}", 4096, device=device) for i in range(4)]
        async with client.async_ring() as ring:
            source = ring.add_file(file)
            wait, started = ring._ring.wait, threading.Event()

            def fail(least):
                started.wait()
                ring._ring.wait = wait
                raise gshm.Error(5, "the wait fails")

            ring._ring.wait = fail
            reads = [asyncio.ensure_future(ring.read(source, 4096 * i, part)) for i, part in enumerate(parts)]
            await asyncio.sleep(0)  # all are in flight
            started.set()
            found = await asyncio.gather(*reads, return_exceptions=True)
            assert [str(one) for one in found] == ["[Errno 5] the wait fails"] * 4
            for i, part in enumerate(parts):
                assert await ring.read(source, 4096 * i, part) == 4096
        assert b"".join(part.read() for part in parts) == DATA[:16384]

    asyncio.run(work())


def test_rings_of_memory_without_a_daemon(client, file, on_host):
    memory = gshm.allocate(4096)
    with client.ring() as ring:
        source = ring.add_file(file)
        ring.read(source, 0, memory)
        ring.submit()
        assert ring.wait()[0].result == 4096
    assert memory.tobytes() == DATA[:4096]


def test_snapshots(client, gshmd, tmp_path):
    import subprocess

    from conftest import BUILD

    with client.create("models/a", 5000):
        pass
    folder = tmp_path / "snapshot"
    subprocess.run([BUILD / "bin" / "gshm", "--dir", gshmd.dir, "snapshot", folder], check=True, capture_output=True)
    state = gshm.snapshot(folder)
    assert state.complete and state.objects == 1 and state.size_bytes == 5000 and "models/a" in state.names
    assert state.created_ns > 0 and state.left_out == () and state.stored_bytes > 0
    (folder / "manifest.jsonl").unlink()
    assert not gshm.snapshot(folder).complete
