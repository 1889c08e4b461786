"""Fences: GPU work of several processes in order (docs/fence.md)."""
from __future__ import annotations

import ctypes
import errno
import threading
from typing import Any, Optional

from . import _abi
from ._abi import lib
from .arrays import Lease
from .errors import check
from .waiting import milliseconds, sliced


def stream_handle(stream: Any) -> Optional[int]:
    """A CUstream: None is the legacy default stream; an integer, or a stream of torch or cupy."""
    if stream is None:
        return None
    for attribute in ("cuda_stream", "ptr"):
        value = getattr(stream, attribute, None)
        if value is not None:
            return int(value)
    return int(stream)


class Fence:
    """Counts generations. Keeps the lease of its object."""

    def __init__(self, lease: Lease, *, write: bool = False) -> None:
        handle = ctypes.c_void_p()
        lease.call(lib.fence_open, _abi.WRITE if write else 0, ctypes.byref(handle))
        self._handle: Optional[int] = handle.value
        self._close = lib.fence_close
        self._lock = threading.Lock()

    def _need(self) -> int:
        if self._handle is None:
            raise ValueError("the fence is closed")
        return self._handle

    def publish(self, stream: Any = None) -> int:
        """The next generation is complete when the work queued on the stream so far is. Returns its number at once."""
        generation = ctypes.c_uint64()
        with self._lock:
            check(lib.fence_publish(self._need(), stream_handle(stream), ctypes.byref(generation)))
        return generation.value

    def wait(self, generation: int = 0, *, stream: Any = None, timeout: Optional[float] = None) -> int:
        """Later work on the stream begins when the generation is complete; on host the call returns then. 0: the newest.
        An unpublished generation is waited for, up to the timeout in seconds."""
        number = ctypes.c_uint64(generation)
        handle = stream_handle(stream)

        def attempt(seconds: float) -> int:
            with self._lock:
                status: int = lib.fence_wait(
                    self._need(), handle, generation, milliseconds(seconds), ctypes.byref(number)
                )
            return status

        check(sliced(attempt, timeout))
        return number.value

    def is_complete(self, generation: int) -> bool:
        """Raises OwnerDead if its writer died before."""
        with self._lock:
            status = lib.fence_check(self._need(), generation)
            if status == -errno.EAGAIN:
                return False
            check(status)
        return True

    @property
    def published(self) -> int:
        """The newest generation; 0: none."""
        with self._lock:
            return int(lib.fence_published(self._need()))

    def close(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self._close(handle)

    def __enter__(self) -> Fence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._close(handle)
