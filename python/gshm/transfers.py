"""Files to objects and back (docs/files.md)."""
from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from . import _abi
from .errors import Error

Progress = Callable[[int, int], Any]  # bytes done, bytes in all (0: unknown)


class Transfer(NamedTuple):
    bytes: int
    seconds: float
    paths: Tuple[str, ...]  # that the bytes took: "direct", "cached", "staged", ...


def paths_of(bits: int) -> Tuple[str, ...]:
    return tuple(name for bit, name in _abi.PATHS.items() if bits & bit)


@contextlib.contextmanager
def descriptor(file: Any, writes: bool) -> Iterator[int]:
    """The descriptor of a path, a file object or a number."""
    if isinstance(file, int) or hasattr(file, "fileno"):
        yield file if isinstance(file, int) else file.fileno()
        return
    fd = os.open(file, (os.O_RDWR | os.O_CREAT if writes else os.O_RDONLY) | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def run_transfer(call: Callable[[Any, Any], int], progress: Optional[Progress], *, verify: bool = False) -> Transfer:
    """call(options, info). An exception of `progress` ends the transfer and is raised."""
    raised: List[BaseException] = []

    def report(_: Any, done: int, total: int) -> int:
        try:
            if progress is not None:
                progress(done, total)
        except BaseException as error:  # also KeyboardInterrupt
            raised.append(error)
        return len(raised)

    # Without a function of the caller it still runs: that is where signals are served.
    options = _abi.TransferOptions(flags=_abi.TRANSFER_VERIFY if verify else 0, progress=_abi.PROGRESS(report))
    info = _abi.TransferInfo()
    try:
        call(ctypes.byref(options), ctypes.byref(info))
    except Error as error:
        if raised and error.errno == errno.ECANCELED:
            raise raised[0] from None
        raise
    return Transfer(info.bytes, info.duration_ns / 1e9, paths_of(info.path))
