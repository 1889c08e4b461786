"""Mirrors: an object's bytes for the CPU (docs/mirror.md)."""
from __future__ import annotations

import ctypes
from typing import Any, Optional

from . import _abi
from ._abi import lib
from .arrays import Lease
from .errors import check
from .fences import stream_handle


class Mirror:
    """CPU memory for a range of an object. `with` flushes what was marked."""

    def __init__(
        self, lease: Lease, *, write: bool, load: bool, offset: int, size: int, stream: Any
    ) -> None:
        flags = (_abi.MIRROR_WRITE if write else 0) | (_abi.MIRROR_LOAD if load else 0)
        options = _abi.MirrorOptions(flags=flags, offset=offset, size_bytes=size, stream=stream_handle(stream))
        handle = ctypes.c_void_p()
        self._handle: Optional[int] = None
        lease.call(lib.mirror_create, ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle.value
        self._destroy = lib.mirror_destroy
        self._write = write

    def _need(self) -> int:
        if self._handle is None:
            raise ValueError("the mirror is closed")
        return self._handle

    @property
    def size(self) -> int:
        return int(lib.mirror_size(self._need()))

    def memoryview(self) -> memoryview:
        """The bytes. The view keeps the mirror; close() while one exists is the caller's error, as with mmap."""
        size = self.size
        if size == 0:
            return memoryview(b"")
        block: Any = (ctypes.c_char * size).from_address(lib.mirror_data(self._need()))
        block.mirror = self
        view = memoryview(block).cast("B")
        return view if self._write else view.toreadonly()

    def mark(self, offset: int = 0, size: Optional[int] = None) -> None:
        """Marks a range as changed."""
        check(lib.mirror_mark(self._need(), offset, self.size - offset if size is None else size))

    def unmark(self) -> None:
        lib.mirror_unmark(self._need())

    def flush(self, offset: Optional[int] = None, size: Optional[int] = None) -> None:
        """Writes back what is marked, or a range."""
        if offset is None and size is None:
            check(lib.mirror_flush(self._need()))
            return
        start = offset or 0
        check(lib.mirror_flush_range(self._need(), start, self.size - start if size is None else size))

    def load(self, offset: int = 0, size: Optional[int] = None) -> None:
        """Reads a range again from the object."""
        check(lib.mirror_load(self._need(), offset, self.size - offset if size is None else size))

    def close(self) -> None:
        """Flushes and ends the mirror, even if the flush fails."""
        handle, self._handle = self._handle, None
        if handle is not None:
            check(self._destroy(handle))

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None and self._handle is not None:
            lib.mirror_unmark(self._handle)
        self.close()

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._destroy(handle)
