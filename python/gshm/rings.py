"""Rings: many file transfers at once (docs/ring.md), and the same for asyncio."""
from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi
from ._abi import lib
from .arrays import Array
from .errors import check, make_error
from .transfers import descriptor, paths_of
from .waiting import milliseconds, sliced

if TYPE_CHECKING:
    from .names import Connection

# An array, or a part of one: (array, offset in bytes, size in bytes).
Range = Union[Array, Tuple[Array, int, int]]
BATCH = 64


class Completion(NamedTuple):
    data: Any  # of the transfer
    result: int  # bytes; fewer than asked for at the end of the file
    paths: Tuple[str, ...]
    error: Optional[OSError]


def _ranges(given: Union[Range, Sequence[Range]]) -> List[Tuple[Array, int, int]]:
    many = given if isinstance(given, list) else [given]
    return [(one, 0, one.nbytes) if isinstance(one, Array) else one for one in many]


class Ring:
    """Several threads may use it. Ranges of one transfer are consecutive in the file."""

    def __init__(self, connection: Connection, entries: int = 128) -> None:
        options = _abi.RingOptions(entries=entries, flags=_abi.RING_SHARED)
        handle = ctypes.c_void_p()
        self._handle: Optional[int] = None
        check(lib.ring_create(connection.handle, ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        self._destroy = lib.ring_destroy
        self._lock = threading.Lock()
        self._next = 0
        self._pending: Dict[int, Any] = {}
        self._users = 0  # waits in progress
        self._idle = threading.Condition(self._lock)

    def _need(self) -> int:
        if self._handle is None:
            raise ValueError("the ring is closed")
        return self._handle

    @property
    def entries(self) -> int:
        return int(lib.ring_entries(self._need()))

    @property
    def in_flight(self) -> int:
        """Transfers that are prepared and whose completions have not been taken."""
        return len(self._pending)

    def pending_data(self) -> List[Any]:
        """The data of the transfers in flight."""
        with self._lock:
            return [data for data, _leases, _many in self._pending.values()]

    def add_file(self, file: Any, *, write: bool = False) -> int:
        """Registers a file (a path, a file object or a descriptor). The number identifies it in this ring."""
        number = ctypes.c_uint32()
        with descriptor(file, write) as fd:
            check(lib.ring_add_file(self._need(), fd, ctypes.byref(number)))
        return number.value

    def remove_file(self, file: int) -> None:
        check(lib.ring_remove_file(self._need(), file))

    def read(self, file: int, file_offset: int, into: Union[Range, Sequence[Range]], data: Any = None) -> None:
        """Prepares a transfer from the file into arrays; submit() starts it. `data` comes with the completion. An error with
        errno EAGAIN: the ring is full; take completions first."""
        self._prepare(_abi.IO_READ, file, file_offset, into, data)

    def write(self, file: int, file_offset: int, source: Union[Range, Sequence[Range]], data: Any = None) -> None:
        """Prepares a transfer from arrays into the file."""
        self._prepare(_abi.IO_WRITE, file, file_offset, source, data)

    def _prepare(self, operation: int, file: int, file_offset: int, given: Any, data: Any) -> None:
        many = _ranges(given)
        array = (_abi.Range * len(many))()
        leases = []
        for slot, (one, offset, size) in zip(array, many):
            lease = one._need()
            leases.append(lease)
            slot.object, slot.offset, slot.bytes = lease.handle, one.offset + offset, size
        with self._lock:
            handle = self._need()
            number = self._next
            io = _abi.Io(
                operation=operation,
                file=file,
                file_offset=file_offset,
                ranges=ctypes.addressof(array),
                range_count=len(many),
                user_data=number,
            )
            check(lib.ring_prepare(handle, ctypes.byref(io)))
            self._next += 1
            # Memory without a daemon must not be closed meanwhile; a daemon's object may.
            self._pending[number] = (data, leases, many)

    def submit(self) -> int:
        """Starts what is prepared, and returns the number of transfers."""
        return check(lib.ring_submit(self._need()))

    def wait(self, least: int = 1, timeout: Optional[float] = None) -> List[Completion]:
        """Takes completions: at least so many unless fewer are in flight; fewer after the timeout (seconds)."""
        with self._lock:
            handle = self._need()
            self._users += 1
        try:
            return self._take(handle, least, timeout)
        finally:
            with self._lock:
                self._users -= 1
                self._idle.notify_all()

    def _take(self, handle: int, least: int, timeout: Optional[float]) -> List[Completion]:
        room = max(least, BATCH)
        found = (_abi.Completion * room)()
        count = 0

        def attempt(seconds: float) -> int:
            nonlocal count
            count = lib.ring_wait(handle, found, room, least, milliseconds(seconds))
            if count == 0 and least > 0 and self._pending and self._handle is not None:
                return -errno.ETIMEDOUT
            return count

        status = sliced(attempt, 0 if least == 0 else timeout)
        if status < 0 and status != -errno.ETIMEDOUT:
            check(status)
        completions = []
        for one in found[: max(count, 0)]:
            with self._lock:
                data, _leases, _many = self._pending.pop(one.user_data)
            error = make_error(-one.result, os.strerror(-one.result)) if one.result < 0 else None
            completions.append(Completion(data, max(one.result, 0), paths_of(one.path), error))
        return completions

    def wake(self) -> None:
        """Ends the wait of another thread."""
        lib.ring_wake(self._need())

    def close(self) -> None:
        """Waits for transfers in flight."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is None:
                return
            while self._users:
                lib.ring_wake(handle)
                self._idle.wait(0.05)
        self._destroy(handle)
        self._pending.clear()

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._destroy(handle)


class AsyncRing:
    """A ring whose transfers are awaited: `count = await ring.read(file, 0, array)`. A thread waits for completions."""

    def __init__(self, connection: Connection, entries: int = 128) -> None:
        self._ring = Ring(connection, entries)
        self._start = threading.Lock()
        self._work = threading.Semaphore(0)
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def add_file(self, file: Any, *, write: bool = False) -> int:
        return self._ring.add_file(file, write=write)

    def remove_file(self, file: int) -> None:
        self._ring.remove_file(file)

    async def read(self, file: int, file_offset: int, into: Union[Range, Sequence[Range]]) -> int:
        """The number of bytes read."""
        return await self._transfer(self._ring.read, file, file_offset, into)

    async def write(self, file: int, file_offset: int, source: Union[Range, Sequence[Range]]) -> int:
        return await self._transfer(self._ring.write, file, file_offset, source)

    async def _transfer(self, prepare: Any, file: int, file_offset: int, ranges: Any) -> int:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        while True:
            try:
                prepare(file, file_offset, ranges, (loop, future))
                break
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
            await asyncio.sleep(0.001)  # the ring is full
        self._ring.submit()
        with self._start:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="gshm-ring", daemon=True)
                self._thread.start()
        self._work.release()
        completion = await future
        if completion.error is not None:
            raise completion.error
        return completion.result

    def _serve(self) -> None:
        while not self._closed or self._ring.in_flight:
            self._work.acquire()
            try:
                done = self._ring.wait(1) if self._ring.in_flight else []
            except BaseException as error:
                self._fail(error)
                return
            for completion in done:
                _answer(completion.data, completion, None)

    def _fail(self, error: BaseException) -> None:
        """All transfers in flight fail. The next one starts a thread again."""
        with self._start:
            self._thread = None
            self._work.release()  # its completion has not been taken
            waiting = self._ring.pending_data()
        for one in waiting:
            _answer(one, None, error)

    def close(self) -> None:
        """Waits for transfers in flight."""
        if self._closed:
            return
        self._closed = True
        self._work.release()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._ring.close()

    def __enter__(self) -> AsyncRing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncRing:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.close)


def _answer(waiting: Any, completion: Optional[Completion], error: Optional[BaseException]) -> None:
    loop, future = waiting
    try:
        loop.call_soon_threadsafe(_resolve, future, completion, error)
    except RuntimeError:
        pass  # the loop is closed: nothing waits any more


def _resolve(future: Any, completion: Optional[Completion], error: Optional[BaseException]) -> None:
    if future.done():  # cancelled, or failed before
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(completion)
