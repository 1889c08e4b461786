"""A daemon that is killed under calls: memory stays, calls go on with the next one."""
import asyncio
import threading

import numpy
import pytest
from conftest import Rounds
from consumer import Taken

import gshm


def test_memory_and_handles_survive(client, gshmd, device):
    with client.create("kept", 64, device=device) as made:
        made.write(bytes(range(64)))
    seen = client.open("kept")
    tensor = Taken(seen.__dlpack__())
    array = numpy.asarray(seen) if device == "host" else None
    gshmd.kill()
    assert seen.tobytes() == bytes(range(64)) and seen.shape == (64,)
    Taken(seen.__dlpack__()).delete()  # no daemon is asked
    copy = seen.copy()
    gshmd.start()
    assert seen.stat().state == "sealed" and client.open("kept").read() == copy.tobytes() == bytes(range(64))
    if array is not None:
        assert array.tobytes() == bytes(range(64))
    tensor.delete()


def test_what_was_made_before_goes_on_after(gshmd):
    client = gshm.connect(gshmd.dir, timeout=0)
    made, watch = client.create("a", 8, keep=True), client.watch()
    gshmd.kill()
    for call in (made.seal, made.stat, lambda: watch.next(0)):
        with pytest.raises((ConnectionError, gshm.Timeout)) as raised:
            call()
        assert isinstance(raised.value, gshm.Error) and raised.value.strerror
    gshmd.start()
    client.ping()
    made.write(b"12345678")
    made.seal()


def test_kills_under_calls_of_several_threads(client, gshmd, device, tmp_path):
    """Threads call while the daemon is killed again and again. A call succeeds, or says that it may have taken effect."""
    with client.create("kept", (4, 4), "int32", device) as made:
        made.fill(3)
    work = Rounds()

    def repeat(name, call):
        number = 0
        while not work.over:
            try:
                call(number)
            except gshm.ConnectionLost:
                pass  # create, unlink and the like were in progress
            except BaseException as error:
                work.fail((name, error))
                return
            number += 1
            work.done(name)

    def create(number):
        name = f"new/{number}"
        try:
            with client.create(name, 64, device=device) as fresh:
                fresh.write(b"x" * 64)
        except (gshm.Stale, gshm.Exists):
            pass  # the session was lost, or the create that was in progress has taken effect
        try:
            client.unlink(name)
        except gshm.NotFound:
            pass

    def read(number):
        seen = client.open("kept")
        assert seen.tobytes() == bytes([3]) * 64
        Taken(seen.__dlpack__(max_version=(1, 0))).delete()

    file = tmp_path / "file"
    file.write_bytes(bytes(range(64)))
    held = client.open("kept")

    def transfer(number):
        with client.ring(4) as ring:
            target = gshm.allocate(64) if device == "host" else held.copy()
            ring.read(ring.add_file(file), 0, target)
            ring.submit()
            (done,) = ring.wait()
            assert done.error is None and done.result == 64 and target.tobytes() == bytes(range(64))

    def transfer_async(number):
        async def work():
            async with client.async_ring(4) as ring:
                return await ring.write(ring.add_file(tmp_path / "async", write=True), 0, held)

        assert asyncio.run(work()) == 64

    def cut(number):
        try:
            with client.pool(device) as pool:
                part = pool.empty(64)
                assert len(part.tobytes()) == 64 and gshm.locate(part.ptr).size_bytes >= 64
        except gshm.Stale:
            pass  # the session of the pool was lost

    def order(number):
        with held.fence() as fence:
            assert fence.published == 0

    def look(number):
        with held.mirror() as mirror:
            assert bytes(mirror.memoryview()) == bytes([3]) * 64

    def copy(number):
        try:
            client.put(file, "put", device=device, replace=True)
            client.get("put", tmp_path / "got")
        except gshm.Stale:
            return  # the session was lost
        assert (tmp_path / "got").read_bytes() == bytes(range(64))

    def see(number):
        with client.watch("kept", existing=True) as watch:
            event = watch.next(60)
            assert event.event == "overflow" or event.name == "kept", event  # overflow: the daemon was lost

    calls = {
        "ring": transfer,
        "async ring": transfer_async,
        "pool": cut,
        "fence": order,
        "mirror": look,
        "put and get": copy,
        "watch": see,
        "create": create,
        "read": read,
        "stat": lambda number: client.stat("kept"),
        "list": lambda number: client.list(recursive=True),
        "attributes": lambda number: client.attributes("kept").__setitem__("number", number),
        "wait": lambda number: client.wait("kept", timeout=60),
        "devices": lambda number: client.df(),
    }
    threads = [threading.Thread(target=repeat, args=one) for one in calls.items()]
    for one in threads:
        one.start()
    for _ in range(5):
        gshmd.kill()
        gshmd.start()
        work.wait_for(calls, 2)  # the first one may have ended before the kill
    work.over = True
    for one in threads:
        one.join()
    assert work.failures == []
    assert client.open("kept").tobytes() == bytes([3]) * 64


def test_a_freed_state_makes_handles_stale(client, gshmd):
    made = client.create("a", 8)
    client.shutdown()
    gshmd.process.wait()
    gshmd._reap()
    gshmd.start()
    with pytest.raises(gshm.Stale):
        made.seal()
    assert client.list() == []
