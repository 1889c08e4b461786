"""Watches: events for changes of names (docs/watch.md), as an iterator and for asyncio."""
from __future__ import annotations

import ctypes
import errno
import os
import select
import threading
import time
from typing import Any, AsyncIterator, Iterator, NamedTuple, Optional

from . import _abi
from ._abi import lib, name_of
from .errors import check, make_error
from .waiting import milliseconds


class Event(NamedTuple):
    event: str  # "created", "sealed", "deleted", "renamed", "replaced", "existing", "ready", "overflow", "expired"
    name: str
    old_name: str
    kind: str
    state: str
    id: int
    replaced_id: int
    size_bytes: int
    device: str
    time_ns: int

    @classmethod
    def read(cls, info: _abi.Event) -> Event:
        return cls(
            _abi.EVENTS.get(info.event, str(info.event)),
            name_of(info.name or b""),
            name_of(info.old_name or b""),
            _abi.KINDS.get(info.kind, ""),
            _abi.STATES.get(info.state, ""),
            info.id,
            info.replaced_id,
            info.size_bytes,
            info.device.decode(),
            info.time_ns,
        )


class Watch:
    """Iterate over it, also with `async for`. It has a connection of its own, and goes on with the next daemon."""

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self._destroy = lib.watch_destroy
        self._lock = threading.Lock()
        self._closed = False
        self._loops = 0  # event loops that have registered the descriptors
        self._fd: int = lib.watch_fd(handle)
        self._closing, self._closer = os.pipe2(os.O_CLOEXEC)

    def fileno(self) -> int:
        """For poll() and event loops: readable when next() does not wait."""
        return self._fd

    def _take(self, seconds: Optional[float]) -> Optional[Event]:
        """An event; None: none in time."""
        info = _abi.Event()
        with self._lock:
            if self._handle is None or self._closed:
                raise ValueError("the watch is closed")
            status = lib.watch_next(self._handle, ctypes.byref(info), -1 if seconds is None else milliseconds(seconds))
            if status in (-errno.ETIMEDOUT, -errno.EINTR):
                return None
            check(status)
            return Event.read(info)

    def next(self, timeout: Optional[float] = None) -> Event:
        """The next event. Seconds; None: no limit. Raises Timeout, and NotRunning if no daemon comes back."""
        deadline = None if timeout is None else time.monotonic() + timeout
        poller = select.poll()
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError("the watch is closed")
                poller.register(self._fd, select.POLLIN)
                poller.register(self._closing, select.POLLIN)
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            # Signals are served here; the library waits only for a daemon that comes back.
            ready = poller.poll(None if left is None else milliseconds(left))
            if any(fd == self._fd for fd, _ in ready):
                event = self._take(left)
                if event is not None:
                    return event
            if deadline is not None and time.monotonic() >= deadline:
                raise make_error(errno.ETIMEDOUT, "no event in time")

    def __iter__(self) -> Iterator[Event]:
        """Until the watch is closed."""
        while True:
            try:
                event = self.next()
            except ValueError:
                if not self._closed:
                    raise
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        import asyncio

        loop = asyncio.get_running_loop()
        while await self._readable(loop):
            try:
                event = self._take(0)
            except ConnectionError:  # the wait for the next daemon blocks
                event = await loop.run_in_executor(None, self._take, None)
            if event is not None:
                yield event

    async def _readable(self, loop: Any) -> bool:
        """Waits for an event. False: the watch is closed."""
        with self._lock:
            if self._closed:
                return False
            self._loops += 1
        ready = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self._fd, wake)
        loop.add_reader(self._closing, wake)
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)
            loop.remove_reader(self._closing)
            with self._lock:
                self._loops -= 1
                self._end()
        return not self._closed

    def close(self) -> None:
        """Also while another thread waits in next(), which then raises ValueError; an iteration ends."""
        if self._closed:
            return
        os.write(self._closer, b"x")
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        """Destroys the handle, unless an event loop has its descriptor: it could get the number of another file."""
        if self._closed and self._loops == 0 and self._handle is not None:
            handle, self._handle = self._handle, None
            self._destroy(handle)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not hasattr(self, "_closing"):
            return
        handle, self._handle = self._handle, None
        if handle is not None:
            self._destroy(handle)
        os.close(self._closer)
        os.close(self._closing)
