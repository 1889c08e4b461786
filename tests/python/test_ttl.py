"""Ttls, pins and ephemeral objects."""
import math
import time

import pytest

import gshm


def removed(watch, name):
    """How the name went."""
    for event in watch:
        if event.name == name and event.event in ("expired", "deleted"):
            return event.event


def test_objects_expire(client, tmp_path):
    (tmp_path / "file").write_bytes(b"bytes")
    with client.watch("") as watch:
        client.create("a", 4, ttl=0.05).seal()
        assert removed(watch, "a") == "expired"
        client.put(tmp_path / "file", "b", ttl=0.05)
        assert removed(watch, "b") == "expired"
        client.put(tmp_path / "file", "c", ttl_unused=0.05)
        assert removed(watch, "c") == "expired"
        made = client.create_many([{"name": "d", "shape": 4, "ttl": 0.05, "keep": True}])
        assert made[0].name == "d"
        assert removed(watch, "d") == "expired"


def test_stat_and_set_ttl(client):
    with client.watch("") as watch:
        client.create("a", 4, ttl_unused=3600, keep=True).close()
        info = client.stat("a")
        assert (info.ttl, info.ttl_unused, info.ephemeral, info.pinned) == (3600, True, False, False)
        assert abs(info.expires_ns / 1e9 - time.time() - 3600) < 60
        client.set_ttl("a", None)
        info = client.stat("a")
        assert (info.ttl, info.ttl_unused, info.expires_ns) == (None, False, 0)
        client.set_ttl("a", 60, unused=True)
        with client.open("a"):
            assert client.stat("a").expires_ns == 0
        client.pin("a")
        assert client.stat("a").pinned and client.stat("a").expires_ns == 0
        client.set_ttl("a", 0.001)
        client.unpin("a")
        assert removed(watch, "a") == "expired"
    for wrong in (0, -1, math.nan):
        with pytest.raises(ValueError):
            client.set_ttl("a", wrong)
    with pytest.raises(gshm.Invalid):
        client.create("b", 4, ttl=math.inf)
    with pytest.raises(ValueError):
        client.create("b", 4, ttl=1, ttl_unused=1)
    with pytest.raises(gshm.Invalid):
        client.create("b", 4, ephemeral=True, keep=True)
    with pytest.raises(gshm.NotFound):
        client.pin("none")


def test_ephemeral_objects_end_with_their_client(client, gshmd):
    other = gshm.connect(gshmd.dir, timeout=30)
    with other.create("a", 4, ephemeral=True) as made:
        pass
    made.close()
    other.rename("a", "b")
    assert client.stat("b").ephemeral and client.stat("b").state == "sealed"
    with client.watch("") as watch:
        other.close()
        assert removed(watch, "b") == "deleted"
