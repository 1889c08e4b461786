"""Records of the daemon about itself, devices, names and holders."""
from __future__ import annotations

import ctypes
import os
from typing import Any, List, NamedTuple, Optional, Tuple

from . import _abi
from .errors import check


class Daemon(NamedTuple):
    version: str
    protocol: int
    pid: int
    keeper: int
    sessions: int
    instance: int
    objects: int
    extents: int
    mountpoint: str


class Mount(NamedTuple):
    path: str
    subdirectory: str  # "": the whole store
    source: str
    read_only: bool

    @classmethod
    def read(cls, info: _abi.MountInfo) -> Mount:
        read_only = bool(info.flags & _abi.MOUNT_READ_ONLY)
        return cls(os.fsdecode(info.path), os.fsdecode(info.subdirectory), os.fsdecode(info.source), read_only)


class OptionChange(NamedTuple):
    """An option of gshmd that differs from its configuration as it was before."""

    option: str
    former: str
    value: str
    needs_restart: bool  # the former value stays until gshmd is started again

    @classmethod
    def read(cls, info: _abi.OptionChange) -> OptionChange:
        needs_restart = bool(info.flags & _abi.OPTION_NEEDS_RESTART)
        return cls(os.fsdecode(info.option), os.fsdecode(info.former), os.fsdecode(info.value), needs_restart)


class Device(NamedTuple):
    name: str
    uuid: str
    model: str
    capacity_bytes: int
    used_bytes: int
    object_bytes: int
    unlinked_bytes: int
    granularity_bytes: int
    handles: Tuple[str, ...]
    compressible: bool
    failure: str  # "": the device works

    @classmethod
    def read(cls, info: _abi.DeviceInfo) -> Device:
        return cls(
            info.name.decode(),
            info.uuid.decode(),
            info.model.decode("utf-8", "replace"),
            info.capacity_bytes,
            info.used_bytes,
            info.object_bytes,
            info.unlinked_bytes,
            info.granularity_bytes,
            tuple(name for bit, name in _abi.HANDLES.items() if info.handle_kinds & bit),
            bool(info.compressible),
            info.failure.decode("utf-8", "replace") or "failed" if info.failed else "",
        )


class Stat(NamedTuple):
    kind: str  # "object", "directory", "symlink", "special"
    state: str  # of an object: "open", "sealed"
    id: int
    size_bytes: int  # of an object; of a directory its entries
    mode: int
    uid: int
    gid: int
    device: str
    leases: int
    keep: bool
    dedicated: bool
    compressible: bool
    former: bool
    created_ns: int
    modified_ns: int
    allocation_bytes: int
    extent: int
    extent_offset: int
    ttl: Optional[float] = None  # seconds
    ttl_unused: bool = False  # counts from the last use
    expires_ns: int = 0  # 0: at no known time
    ephemeral: bool = False
    pinned: bool = False
    evictable: bool = False
    tier: str = ""  # where a tier has the object: "host", "disk"; "": it is on its device

    @classmethod
    def read(cls, info: _abi.StatInfo) -> Stat:
        return cls(
            _abi.KINDS.get(info.kind, str(info.kind)),
            _abi.STATES.get(info.state, str(info.state)),
            info.id,
            info.size_bytes,
            info.mode,
            info.uid,
            info.gid,
            info.device.decode(),
            info.leases,
            bool(info.flags & _abi.KEEP),
            bool(info.flags & _abi.DEDICATED),
            bool(info.flags & _abi.COMPRESSIBLE),
            bool(info.flags & _abi.FORMER),
            info.created_ns,
            info.modified_ns,
            info.allocation_bytes,
            info.extent,
            info.extent_offset,
            info.ttl_ms / 1000 if info.ttl_ms else None,
            bool(info.flags & _abi.TTL_UNUSED),
            info.expires_ns,
            bool(info.flags & _abi.CREATE_EPHEMERAL),
            bool(info.flags & _abi.STAT_PINNED),
            bool(info.flags & _abi.EVICTABLE),
            info.tier.decode(),
        )


class Tier(NamedTuple):
    """Where objects go that leave a full device."""

    name: str  # "host", or the path of a folder
    capacity_bytes: int
    used_bytes: int
    objects: int
    keep: bool  # its objects outlive a restart of the machine
    failure: str  # why it takes no further objects; "": it does

    @classmethod
    def read(cls, info: _abi.TierInfo) -> Tier:
        return cls(
            info.name.decode("utf-8", "surrogateescape"),
            info.capacity_bytes,
            info.used_bytes,
            info.objects,
            bool(info.flags & _abi.KEEP),
            info.failure.decode("utf-8", "replace"),
        )


class Holder(NamedTuple):
    pid: int
    uid: int
    leases: int
    writable: bool
    command: str

    @classmethod
    def read(cls, info: _abi.Holder) -> Holder:
        return cls(info.pid, info.uid, info.leases, bool(info.writable), info.command.decode("utf-8", "replace"))


class Unlinked(NamedTuple):
    name: str  # its last name
    stat: Stat
    holders: List[Holder]


def read_all(kind: Any, function: Any, *arguments: Any) -> List[Any]:
    """The structs that a call writes to an array, however many there are."""
    count = ctypes.c_size_t(0)
    capacity = 16
    while True:
        infos = (kind * capacity)()
        infos[0].struct_size = ctypes.sizeof(kind)
        check(function(*arguments, infos, capacity, ctypes.byref(count)))
        if count.value <= capacity:
            return list(infos[: count.value])
        capacity = count.value


def read_mounts(function: Any, *arguments: Any) -> List[Mount]:
    return [Mount.read(info) for info in read_all(_abi.MountInfo, function, *arguments)]


def read_changes(call: Any) -> List[OptionChange]:
    # One call: a second one would find no changes.
    infos = (_abi.OptionChange * 256)()
    infos[0].struct_size = ctypes.sizeof(_abi.OptionChange)
    count = ctypes.c_size_t(0)
    call(infos, len(infos), ctypes.byref(count))
    return [OptionChange.read(infos[i]) for i in range(min(count.value, len(infos)))]


def read_devices(function: Any, *arguments: Any) -> List[Device]:
    return [Device.read(info) for info in read_all(_abi.DeviceInfo, function, *arguments)]


def read_holders(call: Any) -> List[Holder]:
    count = ctypes.c_size_t(0)
    capacity = 64
    while True:
        infos = (_abi.Holder * capacity)()
        infos[0].struct_size = ctypes.sizeof(_abi.Holder)
        call(infos, capacity, ctypes.byref(count))
        if count.value <= capacity or capacity >= 1000:
            return [Holder.read(infos[i]) for i in range(min(count.value, capacity))]
        capacity = min(count.value, 1000)  # the daemon names no more
