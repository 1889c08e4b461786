"""Limits of accounts: client.limit(), client.limits()."""
from __future__ import annotations

import os

import pytest

import gshm


def test_a_limit_is_set_listed_and_refuses(client):
    uid = os.geteuid()
    client.limit(user=uid, device="host", bytes=1 << 20, objects=7)
    try:
        (limit,) = [one for one in client.limits(user=uid) if one.device == "host"]
        assert (limit.kind, limit.id, limit.bytes, limit.objects, limit.soft_bytes) == ("user", uid, 1 << 20, 7, 0)
        with pytest.raises(gshm.Full, match="the limit of uid"):
            client.create("limits/large", (1 << 20) + 1, device="host", map=False)
        with client.create("limits/fits", 1 << 19, device="host", map=False):
            (limit,) = [one for one in client.limits(user=uid) if one.device == "host"]
            assert limit.used_bytes >= 1 << 19 and limit.used_objects >= 1
        assert any(one.kind == "user" for one in client.limits(own=True))
    finally:
        client.limit(user=uid, device="host", bytes=0, objects=0)
    assert [one for one in client.limits() if one.kind != "reserve"] == []


def test_an_account_is_one_of_three(client):
    with pytest.raises(ValueError):
        client.limit(bytes=1)
    with pytest.raises(ValueError):
        client.limit(user=1, group=1, bytes=1)
    with pytest.raises(ValueError):
        client.limit(user=1)
    with pytest.raises(gshm.NotFound):
        client.limit(directory="no/such/directory", bytes=1)
    with pytest.raises(gshm.Unsupported):
        client.reserve("host", percent=10)
    with pytest.raises(ValueError):
        client.reserve("host")
