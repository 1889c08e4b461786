"""A client of a daemon: creates and opens objects, moves files, makes rings and pools."""
from __future__ import annotations

import ctypes
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._abi import lib, optional_text, path_text, text
from .arrays import Lease, opened, product, to_shape
from .attributes import attribute_array, read_tensor_attributes, text_array
from .dtypes import UINT8, dtype as to_dtype
from .errors import Error, NotFound, check
from .lifetimes import lifetime_of
from .names import Names, batch_errors
from .objects import Object
from .pools import Pool
from .rings import AsyncRing, Ring
from .shares import Shares
from .transfers import Progress, Transfer, run_transfer


class NewObject:
    """The arguments of create() as a struct, with the bytes that it points to."""

    def __init__(
        self,
        name: str,
        shape: Union[int, Sequence[int]],
        dtype: Any = "uint8",
        device: Optional[str] = None,
        mode: int = 0,
        keep: bool = False,
        dedicated: bool = False,
        compressible: bool = False,
        replace: bool = False,
        unnamed: bool = False,
        map: bool = True,
        owner: Optional[Tuple[int, int]] = None,
        attributes: Optional[Mapping[str, Any]] = None,
        ttl: Optional[float] = None,
        ttl_unused: Optional[float] = None,
        ephemeral: bool = False,
        evictable: bool = False,
    ) -> None:
        self.name = name
        self.dtype, self.shape = to_dtype(dtype), to_shape(shape)
        self.hidden, self.replaces = replace or unnamed, replace
        size = product(self.shape) * self.dtype.itemsize
        told = {"dtype": self.dtype.name, "shape": ",".join(str(one) for one in self.shape), **(attributes or {})}
        self._array, self._kept = attribute_array(told)
        lifetime = lifetime_of(ttl, ttl_unused, ephemeral)
        flags = (
            lifetime.flags
            | (_abi.KEEP if keep else 0)
            | (_abi.DEDICATED if dedicated else 0)
            | (_abi.COMPRESSIBLE if compressible else 0)
            | (_abi.UNNAMED if self.hidden else 0)
            | (_abi.EMPTY if size == 0 else 0)
            | (_abi.OWNER if owner is not None else 0)
            | (0 if map else _abi.NO_MAP)
            | (_abi.EVICTABLE if evictable else 0)
        )
        self.spec = _abi.CreateSpec(
            mode=mode,
            name=text(name),
            size_bytes=size,
            device=optional_text(device),
            flags=flags,
            attributes=ctypes.addressof(self._array),
            attribute_count=len(self._array),
            uid=owner[0] if owner else 0,
            gid=owner[1] if owner else 0,
            ttl_ms=lifetime.ttl_ms,
        )

    def made(self, client: Client, lease: Lease) -> Object:
        return Object(
            client,
            lease,
            self.shape,
            self.dtype,
            name=self.name,
            writable=True,
            created=True,
            unnamed=self.hidden,
            replaces=self.replaces,
        )


class Client(Names, Shares):
    """A connection to gshmd. It reconnects by itself. Any thread may use it; a forked child connects again."""

    # ---- creating ----
    def create(
        self,
        name: str,
        shape: Union[int, Sequence[int]],
        dtype: Any = "uint8",
        device: Optional[str] = None,
        *,
        mode: int = 0,
        keep: bool = False,
        dedicated: bool = False,
        compressible: bool = False,
        replace: bool = False,
        unnamed: bool = False,
        map: bool = True,
        owner: Optional[Tuple[int, int]] = None,
        attributes: Optional[Mapping[str, Any]] = None,
        ttl: Optional[float] = None,
        ttl_unused: Optional[float] = None,
        ephemeral: bool = False,
        evictable: bool = False,
    ) -> Object:
        """A new object filled with zeros, open for writing. `device` is the daemon's name of it; None: its first. `mode` 0 is
        0o600, or what the directory's default ACL gives (docs/sharing.md).

        In a `with` statement it is sealed at the end, and removed after an exception. Without, it is reclaimed with this
        session unless seal() is called or `keep` is true. With `replace` or `unnamed` it is invisible until publish() or
        the end of the `with` statement, when it takes the name, in place of an existing object with `replace`.
        The attributes `dtype` and `shape` tell others what it is.

        It is removed `ttl` seconds after it has got its name, or when it was not used for `ttl_unused` seconds; if it is
        `ephemeral`, with this session even if it is sealed. An `evictable` object leaves a full device for a tier while nothing
        uses it."""
        new = NewObject(
            name, shape, dtype, device, mode, keep, dedicated, compressible, replace, unnamed, map, owner, attributes,
            ttl, ttl_unused, ephemeral, evictable,
        )
        lease = opened(lib.create, self._need().handle, ctypes.byref(new.spec), name=name)
        return new.made(self, lease)

    def create_many(self, objects: Sequence[Mapping[str, Any]]) -> List[Union[Object, Error]]:
        """A batch, in one round trip. Each element has the arguments of create() by name. An object for each, or its
        error."""
        new = [NewObject(**one) for one in objects]
        specs = (_abi.CreateSpec * len(new))(*[one.spec for one in new])
        handles, status = (ctypes.c_void_p * len(new))(), (ctypes.c_int * len(new))()
        code = lib.create_batch(self._need().handle, specs, len(new), handles, status)
        errors = batch_errors(code, status, [one.name for one in new])
        return [error or one.made(self, Lease(handle)) for one, handle, error in zip(new, handles, errors)]

    # ---- opening ----
    def open(
        self,
        name: str,
        *,
        write: bool = False,
        wait: Optional[float] = None,
        sealed: bool = False,
        map: bool = True,
        any_device: bool = False,
        shape: Union[int, Sequence[int], None] = None,
        dtype: Any = None,
    ) -> Object:
        """Opens an object, for reading unless `write`. With `wait`, waits so many seconds until it is sealed (with `write`:
        until it exists). `sealed`: Busy is raised if it is not. Its attributes tell shape and type unless given.

        An object in a tier returns to its device first. With `any_device` one in the tier "host" stays there, and is memory
        of the host: `device` of the opened object tells."""
        if wait is not None:
            self.wait(name, "exists" if write else "sealed", timeout=wait)
        flags = self._open_flags(write, sealed, map, any_device)
        lease = opened(lib.open, self._need().handle, text(name), flags, name=name, ordered=True)
        if shape is not None or dtype is not None:
            return self._given(lease, name, write, shape, dtype)
        while True:
            try:
                found = self.attributes(name).read("dtype", "shape")
                info = self.stat(name)
            except NotFound:  # removed meanwhile: the open object stays
                return self._given(lease, name, write, None, None)
            if info.id == lib.id(lease.handle) or info.kind != "object":
                break
            # replaced meanwhile
            lease = opened(lib.open, self._need().handle, text(name), flags, name=name, ordered=True)
        numbers, kind = read_tensor_attributes(found, lease.size_bytes)
        return Object(self, lease, numbers, kind, name=name, writable=write, sealed=info.state == "sealed")

    def open_id(
        self,
        id: int,
        *,
        write: bool = False,
        map: bool = True,
        any_device: bool = False,
        shape: Union[int, Sequence[int], None] = None,
        dtype: Any = None,
    ) -> Object:
        """By its id, which Object.id and stat() have. Attributes are found by name only: bytes, unless a shape is given."""
        flags = self._open_flags(write, False, map, any_device)
        lease = opened(lib.open_id, self._need().handle, id, flags, ordered=True)
        return self._given(lease, None, write, shape, dtype)

    def open_path(self, path: Any, *, write: bool = False, map: bool = True, any_device: bool = False) -> Object:
        """The object behind a file of the daemon's mount."""
        flags = self._open_flags(write, False, map, any_device)
        lease = opened(lib.open_path, self._need().handle, text(path), flags, ordered=True)
        return self._given(lease, None, write, None, None)

    def open_many(
        self, names: Sequence[str], *, write: bool = False, map: bool = True, any_device: bool = False
    ) -> List[Union[Object, Error]]:
        """A batch, in one round trip: an object of bytes for each name, or its error."""
        flags = self._open_flags(write, False, map, any_device)
        handles = (ctypes.c_void_p * len(names))()
        status = (ctypes.c_int * len(names))()
        call = lib.open_batch
        code = call(self._need().handle, text_array(names), len(names), flags, handles, status)
        errors = batch_errors(code, status, names)
        return [
            error or self._given(Lease(handle, ordered=True), name, write, None, None)
            for name, handle, error in zip(names, handles, errors)
        ]

    @staticmethod
    def _open_flags(write: bool, sealed: bool, map: bool, any_device: bool) -> int:
        return (
            (_abi.WRITE if write else 0)
            | (_abi.SEALED_ONLY if sealed else 0)
            | (0 if map else _abi.NO_MAP)
            | (_abi.ANY_DEVICE if any_device else 0)
        )

    def _given(
        self, lease: Lease, name: Optional[str], write: bool, shape: Union[int, Sequence[int], None], dtype: Any
    ) -> Object:
        kind = UINT8 if dtype is None else to_dtype(dtype)
        numbers = (lease.size_bytes // kind.itemsize,) if shape is None else to_shape(shape)
        return Object(self, lease, numbers, kind, name=name, writable=write)

    # ---- files ----
    def put(
        self,
        file: Any,
        name: str,
        *,
        device: Optional[str] = None,
        mode: int = 0,
        replace: bool = False,
        dedicated: bool = False,
        compressible: bool = False,
        verify: bool = False,
        attributes: Optional[Mapping[str, Any]] = None,
        progress: Optional[Progress] = None,
        ttl: Optional[float] = None,
        ttl_unused: Optional[float] = None,
        ephemeral: bool = False,
        evictable: bool = False,
    ) -> Transfer:
        """A file (a path, a file object or a descriptor; also a pipe) becomes a sealed object. `progress` is called with the
        bytes done and in all; an exception in it ends the transfer. `ttl`, `ttl_unused`, `ephemeral` and
        `evictable` are those of create()."""
        array, _kept = attribute_array(attributes or {})
        lifetime = lifetime_of(ttl, ttl_unused, ephemeral)
        spec = _abi.CreateSpec(
            mode=mode,
            name=text(name),
            device=optional_text(device),
            flags=(_abi.REPLACE if replace else 0)
            | (_abi.DEDICATED if dedicated else 0)
            | (_abi.COMPRESSIBLE if compressible else 0)
            | (_abi.EVICTABLE if evictable else 0)
            | lifetime.flags,
            attributes=ctypes.addressof(array) if len(array) else None,
            attribute_count=len(array),
            ttl_ms=lifetime.ttl_ms,
        )
        connection = self._need()
        if isinstance(file, int) or hasattr(file, "fileno"):
            function, source = lib.put_fd, file if isinstance(file, int) else file.fileno()
        else:
            function, source = lib.put_file, path_text(file)
        return run_transfer(
            lambda options, info: check(
                function(connection.handle, source, ctypes.byref(spec), options, info), name
            ),
            progress,
            verify=verify,
        )

    def get(self, name: str, path: Any, *, verify: bool = False, progress: Optional[Progress] = None) -> Transfer:
        """Writes an object to a file, which takes its name when it is complete."""
        connection = self._need()
        return run_transfer(
            lambda options, info: check(
                lib.get_file(connection.handle, text(name), path_text(path), options, info), name
            ),
            progress,
            verify=verify,
        )

    def ring(self, entries: int = 128) -> Ring:
        """Many file transfers at once."""
        return Ring(self._need(), entries)

    def async_ring(self, entries: int = 128) -> AsyncRing:
        """The same for asyncio."""
        return AsyncRing(self._need(), entries)

    def pool(
        self,
        device: Optional[str] = None,
        *,
        name: Optional[str] = None,
        mode: int = 0o600,
        slab_bytes: int = 0,
        limit_bytes: int = 0,
        keep: bool = False,
    ) -> Pool:
        """Shareable allocations of any size. With `keep` the slabs outlive the process, in the directory `name`."""
        return Pool(self, device, name, mode, slab_bytes, limit_bytes, keep)
