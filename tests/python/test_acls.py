"""Sharing with single users and groups (docs/sharing.md)."""
import os

import pytest

import gshm


def test_an_object_is_shared(client):
    with client.create("x", 100):
        pass
    assert client.acl("x") == [
        gshm.AclEntry("owner", 6), gshm.AclEntry("owning_group", 0), gshm.AclEntry("other", 0)
    ]  # fmt: skip
    share = client.share("x", 12345, groups=[23456])
    assert share == gshm.Share(1, "")
    assert gshm.AclEntry("user", 4, 12345) in client.acl("x")
    assert gshm.AclEntry("group", 4, 23456) in client.acl("x")
    assert client.stat("x").mode == 0o640
    assert client.unshare("x", 12345) == 1
    assert gshm.AclEntry("user", 4, 12345) not in client.acl("x")
    assert client.unshare("x") == 1
    assert client.unshare("x") == 0
    assert client.stat("x").mode == 0o600


def test_a_directory_is_shared_with_what_is_made_in_it(client):
    with client.create("d/old", 100):
        pass
    assert client.acl("d", default=True) == []
    assert client.share("d", users=["root", 12345], write=True).changed == 1
    with client.create("d/new", 100):
        pass
    assert gshm.AclEntry("user", 7, 12345) in client.acl("d/new")
    assert client.stat("d/new").mode == 0o660
    assert all(entry.kind != "user" for entry in client.acl("d/old"))
    assert client.share("d", 12345, recursive=True).changed == 3
    assert client.unshare("d", recursive=True) == 3
    assert client.acl("d", default=True) == []
    with client.create("d/private", 100, mode=0o600):
        pass


def test_a_directory_above_blocks_it(client):
    with client.create("closed/x", 100):
        pass
    client.change("closed", mode=0o700)
    assert client.share("closed/x", 12345).blocked_by == "closed"
    assert client.share("closed/x", 12345, parents=True).blocked_by == ""


def test_acls_are_replaced(client):
    with client.create("x", 100):
        pass
    entries = [gshm.AclEntry("user", 6, 12345), gshm.AclEntry("mask", 4)]
    client.set_acl("x", entries)
    assert set(entries) <= set(client.acl("x"))
    client.set_acl("x", [])
    assert len(client.acl("x")) == 3


def test_what_is_unknown_is_refused(client):
    with client.create("x", 100):
        pass
    with pytest.raises(LookupError, match="no-such-user"):
        client.share("x", "no-such-user")
    with pytest.raises(LookupError, match="no-such-group"):
        client.share("x", groups="no-such-group")
    with pytest.raises(gshm.Invalid):
        client.share("x")
    with pytest.raises(gshm.Invalid):
        client.set_acl("x", [gshm.AclEntry("user", 4, 1), gshm.AclEntry("user", 4, 1)])
    with pytest.raises(gshm.NotFound):
        client.share("missing", os.getuid())
