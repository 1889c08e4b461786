"""Unfinished files of gshm.torch.save: locks, and what is trusted."""
import errno
import fcntl
import gc
import os
import struct
import threading

import pytest
import torch
from conftest import run_python

import gshm
import gshm.torch
from gshm import stores
from gshm.tables import Table


@pytest.mark.parametrize("lock", ["file", "folder"])
def test_a_forked_process_does_not_keep_the_lock(tmp_path, lock):
    path = tmp_path / "a" if lock == "file" else tmp_path
    reading, writing = os.pipe()
    with stores.locked(str(path), os.O_RDWR | os.O_CREAT) if lock == "file" else stores.locked_folder(str(path)):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent has looked
            os._exit(0)
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(fd)


def test_an_error_in_the_lock_is_raised(tmp_path):
    with pytest.raises(FileNotFoundError, match="of the body"):
        with stores.locked(str(tmp_path / "a"), os.O_RDWR | os.O_CREAT):
            raise FileNotFoundError(errno.ENOENT, "of the body")


@pytest.fixture
def sealed(client, place):
    gshm.torch.save({"a": torch.arange(20000.0, device=place)}, "s", client=client).wait()
    return client.open("s")


def partial_of(client, sealed, path):
    return stores.partial_name(str(path), client.instance, sealed.id)


def test_a_failed_write_leaves_no_empty_file(client, sealed, tmp_path, monkeypatch):
    def fail(*_):
        raise FileNotFoundError(errno.ENOENT, "no position")

    monkeypatch.setattr(stores, "_position", fail)
    with pytest.raises(FileNotFoundError, match="no position"):
        gshm.torch.store("s", tmp_path / "s", client=client)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["link", "second name", "fifo"])
def test_a_file_of_another_kind_is_refused(client, sealed, tmp_path, kind):
    path, other = tmp_path / "s", tmp_path / "precious"
    other.write_bytes(b"precious")
    partial = partial_of(client, sealed, path)
    {"link": os.symlink, "second name": os.link, "fifo": lambda _, to: os.mkfifo(to)}[kind](other, partial)
    with pytest.raises(OSError, match="symbolic link|no regular file"):
        gshm.torch.store("s", path, client=client)
    assert other.read_bytes() == b"precious" and not path.exists()


def test_a_file_of_another_user_is_refused(client, sealed, tmp_path, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(PermissionError, match="of this user"):
        gshm.torch.store("s", tmp_path / "s", client=client)


@pytest.mark.parametrize("size", ["short", "whole"])
def test_a_forged_position_gives_no_zeros(client, sealed, tmp_path, size):
    """The header is right, and the position says that all is there."""
    path = tmp_path / "s"
    assert gshm.torch.store("s", path, client=client) == str(path)
    right = path.read_bytes()
    path.unlink()
    header = Table.of_memory(right).header
    with open(partial_of(client, sealed, path), "wb") as file:
        file.write(struct.pack("<Q", stores.UNFINISHED + len(right)) + header[8:])
        if size == "whole":
            file.truncate(len(right))
    gshm.torch.store("s", path, client=client)
    assert path.read_bytes() == right


def test_an_error_that_no_wait_has_raised_is_a_warning(client, place, tmp_path):
    saved = gshm.torch.save({"a": torch.zeros(2, device=place)}, "s", path=tmp_path / "none" / "s", client=client)
    saved._done.wait()
    with pytest.warns(RuntimeWarning, match="the state s was not saved: .*No such file"):
        del saved
        for one in threading.enumerate():
            if one.name == "gshm-save":
                one.join()
        gc.collect()  # the error has the frames of the background


def test_the_warning_comes_at_the_exit(client, gshmd, place, tmp_path):
    code = """
import sys, torch, gshm, gshm.torch
saved = gshm.torch.save({"a": torch.zeros(2)}, "s", path=sys.argv[2], client=gshm.connect(sys.argv[1]))
"""
    ended = run_python(code, gshmd.dir, tmp_path / "none" / "s")
    assert "RuntimeWarning: the state s was not saved" in ended.stderr
