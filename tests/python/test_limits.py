"""Limits of accounts: client.limit(), client.limits()."""
from __future__ import annotations

import grp
import os
import pwd

import pytest

import gshm


def test_a_limit_is_set_listed_and_refuses(client):
    uid = os.geteuid()
    client.limit(user=uid, device="host", bytes=1 << 20, objects=7)
    try:
        (limit,) = [one for one in client.limits(user=uid) if one.device == "host"]
        assert (limit.kind, limit.id, limit.bytes, limit.objects, limit.soft_bytes) == ("user", uid, 1 << 20, 7, 0)
        with pytest.raises(gshm.Full, match="the limit of user"):
            client.create("limits/large", (1 << 20) + 1, device="host", map=False)
        with client.create("limits/fits", 1 << 19, device="host", map=False):
            (limit,) = [one for one in client.limits(user=uid) if one.device == "host"]
            assert limit.used_bytes >= 1 << 19 and limit.used_objects >= 1
        assert any(one.kind == "user" for one in client.limits(own=True))
    finally:
        client.limit(user=uid, device="host", bytes=0, objects=0)
    assert [one for one in client.limits() if one.kind != "reserve"] == []


def test_users_and_groups_have_names(client):
    client.limit(user="nobody", group=None, device="host", bytes=1 << 20, soft_bytes=1 << 19)
    try:
        uid = pwd.getpwnam("nobody").pw_uid
        (limit,) = [one for one in client.limits(user="nobody") if one.device == "host"]
        assert (limit.id, limit.bytes, limit.soft_bytes) == (uid, 1 << 20, 1 << 19)
        client.limit(user=uid, device="host", objects=5)  # None: the others stay
        (limit,) = [one for one in client.limits(user=uid) if one.device == "host"]
        assert (limit.bytes, limit.objects) == (1 << 20, 5)
        with pytest.raises(gshm.Invalid, match="would be above the hard one of 1.0 MiB"):
            client.limit(user="nobody", device="host", soft_bytes=1 << 21)
    finally:
        client.limit(user="nobody", device="host", bytes=0, soft_bytes=0, objects=0)
    name = grp.getgrgid(0).gr_name
    client.limit(group=name, bytes=1 << 40)
    client.limit(group=name, bytes=0)
    with pytest.raises(LookupError, match="there is no user 'no such user'"):
        client.limit(user="no such user", bytes=1)
    with pytest.raises(LookupError, match="there is no group"):
        client.limits(group="no such group")


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
