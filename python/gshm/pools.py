"""Pools: allocations of any size that other processes can open (docs/pool.md)."""
from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from . import _abi
from ._abi import lib, optional_text
from .arrays import Array, Lease, product, to_shape
from .dtypes import dtype as to_dtype
from .errors import check
from .fences import stream_handle

if TYPE_CHECKING:
    from .client import Client


class PoolStats(NamedTuple):
    slabs: int
    reserved_bytes: int
    used_bytes: int
    peak_used_bytes: int
    allocations: int
    stream_waits: int


class Location(NamedTuple):
    """The place of memory for other processes: offset bytes into the object."""

    id: int
    offset: int
    size_bytes: int
    device: str
    dir: str  # runtime folder of the daemon


def locate(address: int) -> Location:
    """Of any address in memory from a pool of this process, or in an object that has been handed out as a tensor."""
    info = _abi.Location()
    dir = ctypes.create_string_buffer(4096)
    check(lib.locate(address, ctypes.byref(info), dir, len(dir)))
    return Location(info.id, info.offset, info.size_bytes, info.device.decode(), os.fsdecode(dir.value))


def open_allocation(
    dir: str, instance: int, id: int, begin: int, offset: int, shape: Sequence[int], dtype: str
) -> Array:
    """Opens pool memory of another process, which was pickled."""
    from .references import open_reference

    return open_reference(dir, instance, id, None, True, begin + offset, to_shape(shape), dtype)


class _Handle:
    __slots__ = ("handle", "_destroy")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._destroy = lib.pool_destroy

    def __del__(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            self._destroy(handle)


def pool_options(
    device: Optional[str], name: Optional[str], mode: int, slab_bytes: int, limit_bytes: int, keep: bool
) -> _abi.PoolOptions:
    return _abi.PoolOptions(
        mode=mode,
        device=optional_text(device),
        name=optional_text(name),
        slab_bytes=slab_bytes,
        limit_bytes=limit_bytes,
        flags=_abi.KEEP if keep else 0,
    )


def read_stats(handle: int) -> PoolStats:
    info = _abi.PoolStats()
    check(lib.pool_get_stats(handle, ctypes.byref(info)))
    return PoolStats(
        info.slabs, info.reserved_bytes, info.used_bytes, info.peak_used_bytes, info.allocations, info.stream_waits
    )


class Pool:
    """Cuts arrays from slabs. Its memory lasts until the last array, view or tensor of it is gone."""

    def __init__(
        self, client: Client, device: Optional[str], name: Optional[str], mode: int, slab_bytes: int, limit_bytes: int,
        keep: bool = False,
    ) -> None:
        options = pool_options(device, name, mode, slab_bytes, limit_bytes, keep)
        handle = ctypes.c_void_p()
        client._call(lib.pool_create, ctypes.byref(options), ctypes.byref(handle))
        self._client = client
        self._pool: Optional[_Handle] = _Handle(handle.value or 0)

    def _need(self) -> _Handle:
        pool = self._pool
        if pool is None:
            raise ValueError("the pool is closed")
        return pool

    def empty(
        self,
        shape: Union[int, Sequence[int]],
        dtype: Any = "uint8",
        *,
        alignment: int = 0,
        stream: Any = None,
    ) -> Array:
        """An array whose contents are undefined. It is freed, in the order of the stream, with its last view and tensor."""
        kind, numbers = to_dtype(dtype), to_shape(shape)
        size = max(product(numbers) * kind.itemsize, 1)
        pool = self._need()
        made = ctypes.c_void_p()
        check(lib.pool_allocate_object(pool.handle, size, alignment, stream_handle(stream), ctypes.byref(made)))
        lease = Lease(made.value or 0)
        client = self._client

        def origin(_write: bool) -> Any:
            place = locate(lease.address)
            return open_allocation, (client.dir, client.instance, place.id, place.offset)

        return Array(lease, numbers, kind, 0, True, origin)

    def trim(self, keep_bytes: int = 0) -> None:
        """Frees unused slabs until at most so many bytes remain in slabs."""
        check(lib.pool_trim(self._need().handle, keep_bytes))

    def stats(self) -> PoolStats:
        return read_stats(self._need().handle)

    def seal(self) -> None:
        """The slabs with arrays become immutable and outlive the process, under their names. GPU work that writes them must
        be complete. Later arrays come from other slabs."""
        check(lib.pool_seal(self._need().handle))

    def close(self) -> None:
        self._pool = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
