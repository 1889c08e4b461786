"""Objects of tensors to safetensors files, which appear when they are complete. A write that was interrupted is continued.

While it is written, a file is beside its place, with a name that has the object's id: the object is sealed, so that the bytes
which are there are right. Its first 8 bytes, in the end the length of the header, tell how far it is complete.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import stat
import struct
from typing import Callable, Iterator, List, Optional, Tuple

from .objects import Object
from .rings import Completion, Ring
from .tables import Table
from .transfers import Progress

WINDOW = 256 << 20  # bytes between two notes of the position
PIECE = 16 << 20  # bytes of a transfer
UNFINISHED = 1 << 63  # marks a position in the first bytes

Piece = Tuple[int, int, int]  # offset in the object, bytes, offset in the file


def pieces(of_object: Table, of_file: Table, begin: int) -> List[Piece]:
    """The parts of the tensors from that place in the file on, in its order."""
    places = {one.name: one.offset for one in of_object.tensors}
    found = []
    for one in sorted(of_file.tensors, key=lambda tensor: tensor.offset):
        for at in range(max(begin - one.offset, 0), one.nbytes, PIECE):
            found.append((places[one.name] + at, min(PIECE, one.nbytes - at), one.offset + at))
    return found


def partial_name(path: str, instance: int, id: int) -> str:
    folder, base = os.path.split(path)
    return os.path.join(folder, f".{base}.gshm-{instance:x}-{id:x}.part")


def has_header(path: str, header: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False


@contextlib.contextmanager
def locked(path: str, flags: int) -> Iterator[int]:
    """A descriptor of the file at the path, locked for one process."""
    fd = _open_locked(path, flags)
    try:
        yield fd
    finally:
        _unlock(fd)


def _open_locked(path: str, flags: int) -> int:
    while True:
        try:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "a symbolic link is in the place of the unfinished file", path) from None
            raise
        try:
            _check_own(fd, path)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(fd, path):
                return fd
        except BaseException:
            _unlock(fd)
            raise
        _unlock(fd)  # another process has completed it: the next one is a new file


def _check_own(fd: int, path: str) -> None:
    """The bytes of an unfinished file are trusted. The file must therefore be one that only this user has written."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        raise PermissionError(errno.EPERM, "the unfinished file is no regular file of this user with one name", path)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _unlock(fd: int) -> None:
    """A process that was forked meanwhile has the descriptor, too: to close it is not enough."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def remove_others(path: str, own: str) -> None:
    """Removes what is left of earlier objects for the same path, unless a process still writes it."""
    folder, base = os.path.split(path)
    for other in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(base)}.gshm-*.part")):
        if other == own:
            continue
        try:
            fd = os.open(other, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(other)
        except OSError:
            pass
        finally:
            _unlock(fd)


def store_object(
    source: Object,
    table: Table,
    path: str,
    *,
    progress: Optional[Progress] = None,
    is_current: Callable[[], bool] = lambda: True,
) -> bool:
    """Writes the tensors of a sealed object to the file. False: is_current() became false, and the file is unchanged."""
    instance = source.client.instance
    marked = {**table.metadata, "gshm.object": f"{instance:x}-{source.id:x}"}
    of_file = Table.layout([one._replace(offset=0, nbytes=0) for one in table.tensors], marked, file=True)
    folder = os.path.dirname(path) or "."
    partial = partial_name(path, instance, source.id)
    remove_others(path, partial)
    with locked(partial, os.O_RDWR | os.O_CREAT) as fd:
        if has_header(path, of_file.header) and os.path.getsize(path) == of_file.size:  # by another process, meanwhile
            os.unlink(partial)
            return True
        try:
            _fill(fd, source, table, of_file, progress)
        except BaseException:
            if os.fstat(fd).st_size == 0:
                os.unlink(partial)  # there is nothing to continue
            raise
        with locked_folder(folder) as folder_fd:
            if not is_current():
                os.unlink(partial)
                return False
            os.rename(partial, path)
            os.fsync(folder_fd)
    return True


@contextlib.contextmanager
def locked_folder(folder: str) -> Iterator[int]:
    """Files get their names one after the other, so that the newest stays."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        _unlock(fd)


def _fill(fd: int, source: Object, table: Table, of_file: Table, progress: Optional[Progress]) -> None:
    header = of_file.header
    at = _position(fd, of_file)
    if at == 0:
        os.ftruncate(fd, 0)
        os.pwrite(fd, header[8:], 8)
        at = _note(fd, len(header))
    remaining = pieces(table, of_file, at)
    with source.client.ring() as ring:
        file = ring.add_file(fd, write=True)
        while remaining:
            window = [one for one in remaining if one[2] < at + WINDOW]
            _write(ring, file, source, window)
            remaining = remaining[len(window) :]
            os.fdatasync(fd)
            at = _note(fd, window[-1][2] + window[-1][1])
            if progress is not None:
                progress(at, of_file.size)
    os.ftruncate(fd, of_file.size)
    os.pwrite(fd, header[:8], 0)
    os.fsync(fd)


def _position(fd: int, of_file: Table) -> int:
    """How far an earlier write is complete; 0: it is not, or of another header."""
    header = of_file.header
    begin = os.pread(fd, len(header), 0)
    if len(begin) < len(header) or begin[8:] != header[8:]:
        return 0
    at = int.from_bytes(begin[:8], "little") - UNFINISHED
    size = min(os.fstat(fd).st_size, of_file.size)
    # Written bytes are neither beyond the end nor holes, whatever the position says.
    return at if len(header) <= at <= size and os.lseek(fd, 0, os.SEEK_HOLE) >= at else 0


def _note(fd: int, at: int) -> int:
    os.pwrite(fd, struct.pack("<Q", UNFINISHED + at), 0)
    return at


def _write(ring: Ring, file: int, source: Object, window: List[Piece]) -> None:
    def take(done: List[Completion]) -> None:
        for one in done:
            if one.error is not None:
                raise one.error
            if one.result != one.data:
                raise OSError(errno.EIO, f"{one.result} of {one.data} bytes were written")

    for offset, size, file_offset in window:
        while True:
            try:
                ring.write(file, file_offset, (source, offset, size), size)
                break
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
            ring.submit()
            take(ring.wait(1))
    ring.submit()
    while ring.in_flight:
        take(ring.wait(1))
