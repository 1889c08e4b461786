"""Objects of a daemon: arrays with a name, an id, attributes and a seal."""
from __future__ import annotations

import ctypes
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Type

from . import _abi
from ._abi import lib, text
from .arrays import Array, Lease, Origin, Shape
from .dtypes import DType
from .errors import Error
from .fences import Fence
from .mirrors import Mirror
from .transfers import Progress, Transfer, run_transfer

if TYPE_CHECKING:
    from .attributes import Attributes
    from .client import Client
    from .records import Holder, Stat


class Handle(NamedTuple):
    """A descriptor or handle of an extent for other programs. The object begins at `offset` in it."""

    value: Any  # a descriptor, or 64 bytes
    extent_bytes: int
    offset: int
    size_bytes: int


class Object(Array):
    """An open object. In a `with` statement a new object is sealed at the end, and removed after an exception."""

    def __init__(
        self,
        client: Client,
        lease: Lease,
        shape: Shape,
        dtype: DType,
        *,
        name: Optional[str],
        writable: bool,
        sealed: bool = False,
        created: bool = False,
        unnamed: bool = False,
        replaces: bool = False,
    ) -> None:
        super().__init__(lease, shape, dtype, 0, writable)
        self._client = client
        self._name = name
        self._id: int = lib.id(lease.handle)
        self._device: str = lib.device(lease.handle).decode()
        lease.sealed = sealed
        self._created = created
        self._unnamed = unnamed  # has no name yet
        self._replaces = replaces
        self._origin = self._make_origin()

    @property
    def client(self) -> Client:
        return self._client

    @property
    def name(self) -> Optional[str]:
        """The name that it was created, opened or published with; None: opened by its id. Others may rename it."""
        return self._name

    @property
    def id(self) -> int:
        return self._id

    @property
    def device(self) -> str:
        """The device at the daemon: "cuda:0", "host"."""
        return self._device

    @property
    def size_bytes(self) -> int:
        return self._need().size_bytes

    @property
    def sealed(self) -> bool:
        """Whether its bytes can no longer change. Asks the daemon until it is true."""
        return self._need().is_sealed()

    def __repr__(self) -> str:
        if self._lease is None:
            return f"<Object {self._name!r} closed>"
        return f"<Object {self._name!r} id={self._id} shape={self._shape} dtype={self._dtype} device={self._device!r}>"

    # ---- the state ----
    def stat(self) -> Stat:
        from .records import Stat

        info = _abi.StatInfo()
        self._need().call(lib.stat_object, ctypes.byref(info))
        return Stat.read(info)

    @property
    def attributes(self) -> Attributes:
        return self._client.attributes(self._need_name())

    def holders(self) -> list[Holder]:
        return self._client.holders(self._need_name())

    def _need_name(self) -> str:
        if self._name is None or self._unnamed:
            raise ValueError("the object was opened by its id, or has no name yet")
        return self._name

    def seal(self) -> None:
        """Makes the bytes immutable. GPU work of this process on the default stream, and on torch's current one, is waited
        for first; other streams are the caller's."""
        self.sync()
        lease = self._need()
        lease.call(lib.seal)
        lease.sealed = True

    def publish(self, name: Optional[str] = None, *, replace: bool = False) -> None:
        """Seals the object and gives it the name, atomically. With `replace` in place of an existing object."""
        wanted = self._name if name is None else name
        if wanted is None:
            raise ValueError("publish() needs a name")
        self.sync()
        lease = self._need()
        lease.call(lib.publish, text(wanted), _abi.REPLACE if replace else 0)
        self._name, self._unnamed, lease.sealed = wanted, False, True
        self._origin = self._make_origin()

    def replace(self, name: Optional[str] = None) -> None:
        self.publish(name, replace=True)

    def __enter__(self) -> Object:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if not self._created or self._lease is None:
            self.close()
            return
        if kind is not None:
            self._remove()
            self.close()
            return
        try:
            if self._unnamed:
                self.publish(replace=self._replaces)
            elif not self._lease.sealed:
                self.seal()
        except BaseException:
            self._remove()
            raise
        finally:
            self.close()

    def _remove(self) -> None:
        """Removes the name, if it still leads to this object. The error that leads here is more important than another."""
        if self._unnamed or self._name is None:
            return
        try:
            if self._client.stat(self._name).id == self._id:
                self._client.unlink(self._name)
        except Error:
            pass

    # ---- bytes ----
    def write(self, data: Any, offset: int = 0) -> None:
        """Copies bytes (anything with the buffer protocol) to the offset. Complete when it returns."""
        view = memoryview(data).cast("B")
        if view.nbytes == 0:
            return
        if view.readonly:
            block: Any = data if isinstance(data, bytes) else bytes(view)
        else:
            block = (ctypes.c_char * view.nbytes).from_buffer(view)
        self._need().call(lib.copy_in, offset, block, view.nbytes)

    def read(self, offset: int = 0, size: Optional[int] = None) -> bytes:
        """Copies bytes from the offset, to the end without a size."""
        count = self.size_bytes - offset if size is None else size
        buffer = ctypes.create_string_buffer(max(count, 0))
        if count > 0:
            self._need().call(lib.copy_out, offset, buffer, count)
        return buffer.raw

    def read_into(self, buffer: Any, offset: int = 0) -> int:
        """Copies bytes from the offset into a writable buffer, and returns its size."""
        view = memoryview(buffer).cast("B")
        if view.nbytes:
            self._need().call(lib.copy_out, offset, (ctypes.c_char * view.nbytes).from_buffer(view), view.nbytes)
        return view.nbytes

    def fill(self, value: int = 0, offset: int = 0, size: Optional[int] = None) -> None:
        count = self.size_bytes - offset if size is None else size
        self._need().call(lib.fill, offset, count, value)

    def sync(self) -> None:
        """Waits for GPU work of this process: on the legacy default stream, and on torch's current one. Nothing on host."""
        lease = self._need()
        if lease.address == 0 or not self._device.startswith("cuda"):
            return
        lease.call(lib.sync)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.current_stream(lease.dl_device()[1]).synchronize()

    def map_peer(self, device: str) -> None:
        """Makes the address usable from another GPU of this process."""
        self._need().call(lib.map_peer, text(device))

    def mirror(
        self, *, write: bool = False, load: bool = True, offset: int = 0, size: int = 0, stream: Optional[int] = None
    ) -> Mirror:
        """The bytes for the CPU: the memory itself on host, a pinned copy of a GPU's."""
        return Mirror(self._need(), write=write, load=load, offset=offset, size=size, stream=stream)

    # ---- order ----
    def fence(self, *, write: bool = False) -> Fence:
        """Orders GPU work of several processes. With `write`, to publish."""
        return Fence(self._need(), write=write)

    # ---- files ----
    def read_file(
        self, file: Any, *, offset: int = 0, file_offset: int = 0, size: Optional[int] = None,
        progress: Optional[Progress] = None,
    ) -> Transfer:
        """Reads a range of a file (a path, a file object or a descriptor) into the object."""
        return self._transfer(lib.read_file, file, False, offset, file_offset, size, progress)

    def write_file(
        self, file: Any, *, offset: int = 0, file_offset: int = 0, size: Optional[int] = None,
        progress: Optional[Progress] = None,
    ) -> Transfer:
        """Writes a range of the object into a file."""
        return self._transfer(lib.write_file, file, True, offset, file_offset, size, progress)

    def _transfer(
        self, function: Any, file: Any, writes: bool, offset: int, file_offset: int, size: Optional[int],
        progress: Optional[Progress],
    ) -> Transfer:
        from .transfers import descriptor

        count = self.size_bytes - offset if size is None else size
        lease = self._need()
        with descriptor(file, writes) as fd:
            return run_transfer(
                lambda options, info: lease.call(function, offset, fd, file_offset, count, options, info), progress
            )

    # ---- handles for other programs ----
    def _export(self, function: Any, value: Any, take: Any) -> Handle:
        info = _abi.HandleInfo()
        self._need().call(function, ctypes.byref(value), ctypes.byref(info))
        return Handle(take(value), info.extent_bytes, info.offset, info.size_bytes)

    def export_fd(self) -> Handle:
        """A descriptor of the extent, which the caller closes."""
        return self._export(lib.export_fd, ctypes.c_int(-1), lambda fd: fd.value)

    def export_dmabuf(self) -> Handle:
        return self._export(lib.export_dmabuf, ctypes.c_int(-1), lambda fd: fd.value)

    def export_fabric(self) -> Handle:
        return self._export(lib.export_fabric, (ctypes.c_uint8 * _abi.HANDLE_BYTES)(), bytes)

    # ---- references ----
    def _make_origin(self) -> Origin:
        client, id, name = self._client, self._id, self._name

        def origin(write: bool) -> Any:
            from .references import open_reference

            return open_reference, (client.dir, client.instance, id, name, write)

        return origin

    def __reduce__(self) -> Any:
        function, arguments = self._make_origin()(not self._is_read_only())
        return function, (*arguments, None, self._shape, self._dtype.name)


def import_object(kind: str, device: str, value: Any, info: Handle, *, write: bool = False) -> Array:
    """Memory of another program by its handle: kind is "fd", "dmabuf", "fabric" or "ipc"."""
    from .arrays import opened
    from .dtypes import UINT8

    given = _abi.HandleInfo(extent_bytes=info.extent_bytes, offset=info.offset, size_bytes=info.size_bytes)
    if kind not in _abi.HANDLES.values():
        raise ValueError(f"{kind!r} is no kind of handle; there are: {', '.join(_abi.HANDLES.values())}")
    function = getattr(lib, f"import_{kind}")
    encoded = value if isinstance(value, int) else (ctypes.c_uint8 * _abi.HANDLE_BYTES).from_buffer_copy(value)
    lease = opened(function, text(device), encoded, ctypes.byref(given), _abi.WRITE if write else 0)
    return Array(lease, (info.size_bytes,), UINT8, 0, write)
