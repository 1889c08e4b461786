"""The connection to a daemon, and what is done by name: look up, list, remove, rename, wait, watch."""
from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, List, Optional, Sequence, Tuple, TypeVar, Union

from . import _abi
from ._abi import lib, name_of, optional_text, path_text, text
from .attributes import Attributes, text_array
from .errors import Error, NotFound, check, make_error
from .lifetimes import ttl_ms
from .limits import Limit, list_limits, set_limit, set_reserve
from .records import Daemon, Device, Holder, Mount, OptionChange, Stat, Tier, Unlinked
from .records import read_changes, read_devices, read_holders, read_mounts
from .shares import Party
from .waiting import milliseconds, sliced
from .watches import Watch

_CONDITIONS = {"exists": _abi.WAIT_EXISTS, "sealed": _abi.WAIT_SEALED, "gone": _abi.WAIT_GONE}
Self = TypeVar("Self", bound="Names")


class Connection:
    """A handle (gshm_client), disconnected with the last reference. Any thread may use it."""

    __slots__ = ("handle", "_disconnect")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._disconnect = lib.disconnect

    def __del__(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            self._disconnect(handle)


def batch_errors(code: int, status: Any, names: Sequence[str]) -> List[Optional[Error]]:
    """The errors of a batch. The library's sentence is that of the first."""
    if code == 0:
        return [None] * len(names)
    sentence = lib.last_error().decode("utf-8", "replace")
    if not any(status):  # of the call, not of an element
        raise make_error(-code, sentence)
    errors: List[Optional[Error]] = []
    for name, one in zip(names, status):
        errors.append(None if one == 0 else make_error(-one, sentence if one == code else os.strerror(-one), name))
    return errors


class Names:
    """The calls of a client on names, and its connection."""

    def __init__(self, handle: int) -> None:
        self._connection: Optional[Connection] = Connection(handle)
        buffer = ctypes.create_string_buffer(4096)
        check(lib.client_dir(handle, buffer, len(buffer)))
        self._dir = os.fsdecode(buffer.value)
        self._instance: Optional[int] = None

    def _need(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise ValueError("the client is closed")
        return connection

    def _call(self, function: Any, *arguments: Any, name: Optional[str] = None) -> int:
        connection = self._need()  # keeps the handle until the call ends
        return check(function(connection.handle, *arguments), name)

    @property
    def dir(self) -> str:
        """The runtime folder of the daemon."""
        return self._dir

    @property
    def instance(self) -> int:
        """Identifies the set of objects. Asked once."""
        if self._instance is None:
            self._instance = self.daemon().instance
        return self._instance

    def close(self) -> None:
        """Ends the session when its last object is closed; unsealed objects without `keep` are reclaimed then."""
        self._connection = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dir!r}{'' if self._connection else ' closed'}>"

    def __reduce__(self) -> Any:
        from .references import shared_client

        return shared_client, (self._dir,)

    # ---- the daemon ----
    def ping(self) -> None:
        self._call(lib.ping)

    def daemon(self) -> Daemon:
        info = _abi.DaemonInfo()
        self._call(lib.daemon, ctypes.byref(info))
        return Daemon(
            info.version.decode(),
            info.protocol,
            info.pid,
            info.keeper,
            info.sessions,
            info.instance,
            info.objects,
            info.extents,
            os.fsdecode(info.mountpoint),
        )

    def devices(self) -> List[Device]:
        return read_devices(lib.devices, self._need().handle)

    df = devices  # used and free bytes are in the list

    def shutdown(self, *, keep: bool = False) -> None:
        """Ends the daemon and frees its objects; with `keep` everything stays for the next one."""
        self._call(lib.shutdown, _abi.KEEP if keep else 0)

    def reload(self) -> List[OptionChange]:
        """gshmd reads its configuration again, and tells what has changed. For root and the daemon's own user."""
        return read_changes(lambda *arguments: self._call(lib.reload, *arguments))

    def mount(self, path: str, *, read_only: bool = False, subdirectory: str = "", source: str = "") -> None:
        """Shows objects as files at a directory, in addition to other mounts. For root and the daemon's own user."""
        options = _abi.MountOptions(
            struct_size=ctypes.sizeof(_abi.MountOptions),
            flags=_abi.MOUNT_READ_ONLY if read_only else 0,
            subdirectory=text(subdirectory),
            source=path_text(source),
        )
        self._call(lib.mount, text(os.path.abspath(path)), ctypes.byref(options))

    def mounts(self) -> List[Mount]:
        return read_mounts(lib.mounts, self._need().handle)

    def limit(
        self,
        *,
        user: Optional[Party] = None,
        group: Optional[Party] = None,
        directory: Any = None,
        device: Optional[str] = None,
        bytes: Optional[int] = None,
        soft_bytes: Optional[int] = None,
        objects: Optional[int] = None,
        soft_objects: Optional[int] = None,
        grace_s: Optional[int] = None,
    ) -> None:
        """Limits what a user or a group (names or numbers) or the objects below a directory may have, on a device or (None)
        on all together. Of the values, 0 removes a limit (for grace_s: 7 days), and None leaves it as it is. A soft limit
        above the hard one raises Invalid. Permitted to root and the user of gshmd."""
        set_limit(
            self._need(), user, group, directory, device, bytes=bytes, soft_bytes=soft_bytes, objects=objects,
            soft_objects=soft_objects, grace_s=grace_s,
        )  # fmt: skip

    def reserve(self, device: str, *, bytes: Optional[int] = None, percent: Optional[int] = None) -> None:
        """Memory of a device that stays free for programs outside of gshm: either `bytes` or `percent`. 0: none."""
        set_reserve(self._need(), device, bytes, percent)

    def limits(
        self,
        *,
        user: Optional[Party] = None,
        group: Optional[Party] = None,
        directory: Any = None,
        device: Optional[str] = None,
        used: bool = False,
        own: bool = False,
    ) -> List[Limit]:
        """The limits of one account, or of all that the caller may see. used: also accounts with objects and no limit;
        own: only those that concern the caller."""
        return list_limits(self._need(), user, group, directory, device, used, own)

    def unmount(self, path: Optional[str] = None, *, lazy: bool = False) -> None:
        """Ends the mount at the path, or all mounts."""
        flags = _abi.LAZY if lazy else 0
        if path is None:
            self._call(lib.unmount, flags)
        else:
            self._call(lib.unmount_at, text(os.path.abspath(path)), flags)

    # ---- names ----
    def seal(self, name: str) -> None:
        self._call(lib.seal_name, text(name), name=name)

    def unlink(self, name: str, *, recursive: bool = False) -> None:
        """Removes a name, or an empty directory; with `recursive` also the objects in a directory. Processes that hold them keep
        them."""
        if recursive and self.stat(name).kind == "directory":
            for error in self.unlink_many([f"{name}/{one}" for one, _ in self.list(name, recursive=True)]):
                if error is not None and not isinstance(error, NotFound):
                    raise error
            return
        self._call(lib.unlink, text(name), name=name)

    def unlink_many(self, names: Sequence[str]) -> List[Optional[Error]]:
        """A batch: for each name None, or the error."""
        status = (ctypes.c_int * len(names))()
        code = lib.unlink_batch(self._need().handle, text_array(names), len(names), status)
        return batch_errors(code, status, names)

    def rename(self, name: str, new_name: str, *, replace: bool = False) -> None:
        self._call(lib.rename, text(name), text(new_name), _abi.REPLACE if replace else 0, name=name)

    def move(self, name: str, device: str, *, keep_holders: bool = False) -> None:
        """Moves the bytes to another device."""
        flags = _abi.MOVE_KEEP_HOLDERS if keep_holders else 0
        self._call(lib.move, text(name), text(device), flags, name=name)

    def demote(self, name: str) -> None:
        """Moves the bytes into the first tier with room. Busy is raised while the object is used."""
        self._call(lib.demote, text(name), 0, name=name)

    def promote(self, name: str) -> None:
        """Brings the bytes back from a tier to their device."""
        self._call(lib.promote, text(name), 0, name=name)

    def tiers(self) -> List[Tier]:
        """The tiers, in the order in which objects enter them."""
        count = ctypes.c_size_t()
        self._call(lib.tiers, None, 0, ctypes.byref(count))
        infos = (_abi.TierInfo * count.value)()
        for info in infos:
            info.struct_size = ctypes.sizeof(info)
        self._call(lib.tiers, infos, len(infos), ctypes.byref(count))
        return [Tier.read(info) for info in infos[: count.value]]

    def stat(self, name: str) -> Stat:
        info = _abi.StatInfo()
        self._call(lib.stat, text(name), ctypes.byref(info), name=name)
        return Stat.read(info)

    def stat_many(self, names: Sequence[str]) -> List[Union[Stat, Error]]:
        if not names:
            return []
        infos = (_abi.StatInfo * len(names))()
        infos[0].struct_size = ctypes.sizeof(_abi.StatInfo)
        status = (ctypes.c_int * len(names))()
        code = lib.stat_batch(self._need().handle, text_array(names), len(names), infos, status)
        return [error or Stat.read(info) for info, error in zip(infos, batch_errors(code, status, names))]

    def exists(self, name: str) -> bool:
        try:
            self.stat(name)
        except NotFound:
            return False
        return True

    def list(self, path: str = "", *, recursive: bool = False) -> List[Tuple[str, Stat]]:
        """The entries of a directory, sorted by name; with `recursive` all objects below it."""
        listing = ctypes.c_void_p()
        flags = _abi.RECURSIVE if recursive else 0
        self._call(lib.list, text(path), flags, ctypes.byref(listing), name=path)
        try:
            found = []
            info = _abi.StatInfo()
            for index in range(lib.listing_count(listing)):
                check(lib.listing_stat(listing, index, ctypes.byref(info)))
                found.append((name_of(lib.listing_name(listing, index)), Stat.read(info)))
            return found
        finally:
            lib.listing_free(listing)

    def unlinked(self) -> List[Unlinked]:
        """Memory that has no name but is still held, and by which processes."""
        listing = ctypes.c_void_p()
        self._call(lib.list_unlinked, ctypes.byref(listing))
        try:
            found = []
            info = _abi.StatInfo()
            for index in range(lib.listing_count(listing)):
                check(lib.listing_stat(listing, index, ctypes.byref(info)))
                holders = read_holders(lambda *to, at=index: check(lib.listing_holders(listing, at, *to)))
                found.append(Unlinked(name_of(lib.listing_name(listing, index)), Stat.read(info), holders))
            return found
        finally:
            lib.listing_free(listing)

    def holders(self, name: str) -> List[Holder]:
        """The processes that hold leases of an object."""
        return read_holders(lambda *to: self._call(lib.holders, text(name), *to, name=name))

    def attributes(self, name: str) -> Attributes:
        return Attributes(self, name)

    def make_directory(
        self, name: str, *, mode: int = 0, device: Optional[str] = None, keep: bool = True,
        owner: Optional[Tuple[int, int]] = None,
    ) -> None:
        """`device` is that of new objects in it. Without `keep` it is removed with its last entry."""
        self._make(_abi.KIND_DIRECTORY, name, None, device, mode, keep, owner)

    def symlink(self, target: str, name: str, *, owner: Optional[Tuple[int, int]] = None) -> None:
        self._make(_abi.KIND_SYMLINK, name, target, None, 0, True, owner)

    def _make(
        self, kind: int, name: str, target: Optional[str], device: Optional[str], mode: int, keep: bool,
        owner: Optional[Tuple[int, int]],
    ) -> None:
        spec = _abi.MakeSpec(
            kind=kind,
            name=text(name),
            target=optional_text(target),
            device=optional_text(device),
            mode=mode,
            flags=(_abi.KEEP if keep else 0) | (_abi.OWNER if owner else 0),
            uid=owner[0] if owner else 0,
            gid=owner[1] if owner else 0,
        )
        self._call(lib.make, ctypes.byref(spec), name=name)

    def read_link(self, name: str) -> str:
        buffer = ctypes.create_string_buffer(4096)
        count = ctypes.c_size_t(0)
        self._call(lib.read_link, text(name), buffer, len(buffer), ctypes.byref(count), name=name)
        return name_of(buffer.raw[: count.value])

    def link(self, name: str, new_name: str) -> None:
        """Another name for the same object."""
        self._call(lib.link, text(name), text(new_name), name=name)

    def change(
        self, name: str, *, mode: Optional[int] = None, owner: Optional[Tuple[int, int]] = None, keep: bool = False
    ) -> None:
        what = (
            (_abi.CHANGE_MODE if mode is not None else 0)
            | (_abi.CHANGE_OWNER if owner is not None else 0)
            | (_abi.CHANGE_KEEP if keep else 0)
        )
        changes = _abi.Changes(
            what=what, mode=mode or 0, uid=owner[0] if owner else 0, gid=owner[1] if owner else 0
        )
        self._call(lib.change, text(name), ctypes.byref(changes), name=name)

    # ---- lifetimes ----
    def set_ttl(self, name: str, ttl: Optional[float], *, unused: bool = False) -> None:
        """Removes the object after so many seconds from now on; with `unused` from its last use on, and not while it is held.
        None: it does not expire."""
        flags = _abi.TTL_UNUSED if unused else 0
        self._call(lib.set_ttl, text(name), 0 if ttl is None else ttl_ms(ttl), flags, name=name)

    def pin(self, name: str) -> None:
        """It neither expires nor leaves its device to make room. For root, and for its owner within gshmd's --pin-share."""
        self._call(lib.pin, text(name), name=name)

    def unpin(self, name: str) -> None:
        self._call(lib.unpin, text(name), name=name)

    # ---- waiting ----
    def wait(self, name: str, until: str = "sealed", *, timeout: Optional[float] = None) -> Optional[Stat]:
        """Waits until the name "exists", is "sealed", or its object is "gone" (None: there was none). Seconds; None: no limit.
        Raises Timeout."""
        if until not in _CONDITIONS:
            raise ValueError(f"until is one of {', '.join(_CONDITIONS)}")
        info = _abi.StatInfo()
        connection = self._need()
        encoded = text(name)
        before = None
        if until == "gone":  # each slice of the wait would look at the object that has the name then
            try:
                before = self.stat(name)
            except NotFound:
                return None

        def attempt(seconds: float) -> int:
            status: int = lib.wait(
                connection.handle, encoded, _CONDITIONS[until], milliseconds(seconds), ctypes.byref(info)
            )
            if status == -errno.ETIMEDOUT and before is not None:
                current = _abi.StatInfo()
                found = lib.stat(connection.handle, encoded, ctypes.byref(current))
                if found == -errno.ENOENT or (found == 0 and current.id != before.id):
                    return 0
                lib.wait(connection.handle, encoded, _CONDITIONS[until], 0, ctypes.byref(info))  # its sentence again
            return status

        check(sliced(attempt, timeout), name)
        return before if until == "gone" else Stat.read(info)

    def watch(self, prefix: str = "", *, existing: bool = False) -> Watch:
        """Events for changes of names that begin with the prefix; with `existing`, the present ones first."""
        handle = ctypes.c_void_p()
        flags = _abi.WATCH_EXISTING if existing else 0
        self._call(lib.watch_create, text(prefix), flags, ctypes.byref(handle), name=prefix)
        return Watch(handle.value or 0)
