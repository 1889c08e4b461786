"""Watches: as an iterator, for asyncio, and when the daemon dies."""
import asyncio
import threading

import pytest

import gshm


def test_events_in_order(client):
    client.create("models/old", 4).seal()
    with client.watch("models/", existing=True) as watch:
        assert (watch.next(60).name, watch.next(60).event) == ("models/old", "ready")
        made = client.create("models/a", 8)
        made.seal()
        client.rename("models/a", "models/b")
        client.create("models/b", 16, replace=True).publish(replace=True)
        client.create("elsewhere", 1).seal()
        client.unlink("models/b")
        seen = [watch.next(60) for _ in range(5)]
        assert [one.event for one in seen] == ["created", "sealed", "renamed", "replaced", "deleted"]
        assert seen[0].size_bytes == 8 and seen[0].id == made.id and seen[0].kind == "object" and seen[0].device
        assert (seen[2].name, seen[2].old_name) == ("models/b", "models/a") and seen[3].replaced_id == made.id
        with pytest.raises(gshm.Timeout):
            watch.next(0)
        with pytest.raises(gshm.Timeout):
            watch.next(0.01)


def test_an_iteration_ends_when_another_thread_closes_the_watch(client):
    watch = client.watch("a")
    seen = []
    begun = threading.Event()

    def iterate():
        for event in watch:
            seen.append(event.name)
            begun.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    client.create("a/b", 1).seal()
    begun.wait()
    watch.close()
    thread.join()
    assert seen[0] == "a"  # the directory
    with pytest.raises(ValueError):
        watch.next()
    watch.close()


def test_asyncio(client):
    async def work():
        watch = client.watch("a")
        seen = []

        async def collect():
            async for event in watch:
                seen.append(event.event)
                if event.event == "deleted":
                    return

        task = asyncio.ensure_future(collect())
        await asyncio.sleep(0)
        with client.create("a", 8):
            pass
        client.unlink("a")
        await asyncio.wait_for(task, 60)
        watch.close()
        assert seen == ["created", "sealed", "deleted"]

        ended = client.watch("b")

        async def until_closed():
            return [event async for event in ended]

        task = asyncio.ensure_future(until_closed())
        await asyncio.sleep(0)
        ended.close()
        assert await asyncio.wait_for(task, 60) == []

    asyncio.run(work())


def test_it_goes_on_with_the_next_daemon(client, gshmd):
    watch = client.watch("a")
    gshmd.kill()
    gshmd.start()
    assert watch.next(60).event == "overflow"
    client.create("a", 1, keep=True)
    assert watch.next(60).event == "created"

    async def work():
        iterator = watch.__aiter__()
        gshmd.kill()
        gshmd.start()
        assert (await asyncio.wait_for(iterator.__anext__(), 60)).event == "overflow"

    asyncio.run(work())


def test_a_bad_prefix(client):
    with pytest.raises(gshm.Invalid):
        client.watch("/a")
