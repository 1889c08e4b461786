"""gshm: /dev/shm for GPU memory.

    import gshm
    c = gshm.connect()
    with c.create("run7/kv", shape=(1024, 128), dtype="bfloat16", device="cuda:0") as b:
        torch.from_dlpack(b).fill_(7)
    t = torch.from_dlpack(c.open("run7/kv", wait=5.0))      # in any process, without a copy

docs/python.md has the whole interface.
"""
from __future__ import annotations

import atexit
import ctypes
import importlib
import os
from typing import Any, Callable, List, Optional

from . import _abi
from ._abi import lib, path_text
from .arrays import Array, allocate, wrap
from .attributes import Attributes
from .client import Client
from .dtypes import DTYPES, DType, dtype
from .errors import (
    Busy,
    ConnectionLost,
    Denied,
    Error,
    Exists,
    Forked,
    Full,
    Invalid,
    IsDirectory,
    NotDirectory,
    NotFound,
    NotRunning,
    OwnerDead,
    Stale,
    Timeout,
    Unsupported,
    check,
)
from .fences import Fence
from .limits import Limit
from .loads import Model, Part, load, unload
from .mirrors import Mirror
from .objects import Handle, Object, import_object
from .patching import patch, unpatch
from .pools import Location, Pool, PoolStats, locate
from .records import Daemon, Device, Holder, Mount, OptionChange, Stat, Tier, Unlinked, read_devices
from .references import connect
from .rings import AsyncRing, Completion, Ring
from .shares import AclEntry, Share
from .snapshots import Snapshot, snapshot
from .transfers import Transfer
from .watches import Event, Watch

__all__ = [
    "AclEntry", "Array", "AsyncRing", "Attributes", "Busy", "Client", "Completion", "ConnectionLost", "Daemon", "Denied", "Device",
    "DTYPES", "DType", "Error", "Event", "Exists", "Fence", "Forked", "Full", "Handle", "Holder", "Invalid", "IsDirectory",
    "Limit", "Location", "Mirror", "Model", "NotDirectory", "NotFound", "NotRunning", "Object", "OwnerDead", "Part", "Pool", "PoolStats", "Ring",
    "Share", "Snapshot", "Stale", "Stat", "Tier", "Timeout", "Transfer", "Unlinked", "Unsupported", "Watch", "allocate", "connect", "dtype",
    "find_daemon", "import_object", "keep_pinned", "library_version", "load", "local_devices", "locate", "patch", "runtime_dir", "set_log",
    "snapshot", "unload", "unpatch", "wrap",
]  # fmt: skip


# Imported when they are first used: they need torch, or other packages.
_LATER = ("torch", "safetensors", "transformers")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module("gshm." + name)
    if name != "__version__":
        raise AttributeError(f"module 'gshm' has no attribute {name!r}")
    try:  # written when a wheel is built
        return importlib.import_module("gshm._version").VERSION
    except ImportError:
        return library_version()  # in the source tree both are of one version


def library_version() -> str:
    return str(lib.version().decode())


def runtime_dir() -> str:
    """The runtime folder that connect() uses by default."""
    buffer = ctypes.create_string_buffer(4096)
    check(lib.runtime_dir(buffer, len(buffer)))
    return os.fsdecode(buffer.value)


def find_daemon(path: Any) -> str:
    """The runtime folder of the daemon whose mount contains the path."""
    buffer = ctypes.create_string_buffer(4096)
    check(lib.find_daemon(path_text(path), buffer, len(buffer)))
    return os.fsdecode(buffer.value)


def local_devices() -> List[Device]:
    """The devices of this process, without a daemon. Starts the CUDA driver, but makes no context."""
    return read_devices(lib.local_devices)


def keep_pinned(most_bytes: int) -> None:
    """The bound for pinned memory that is kept for later mirrors."""
    lib.keep_pinned(most_bytes)


LOG_LEVELS = {"debug": 1, "info": 2, "warning": 3, "error": 4}
_log_function: Optional[Any] = None


def set_log(function: Optional[Callable[[str, str], Any]], level: str = "info") -> None:
    """Messages of the library go to function(level, message) instead of stderr; None: to stderr. Any thread may call it; it
    must not use gshm."""
    global _log_function
    names = {number: name for name, number in LOG_LEVELS.items()}

    def forward(_: Any, number: int, message: bytes) -> None:
        assert function is not None
        function(names.get(number, str(number)), message.decode("utf-8", "replace"))

    chosen: Any = None if function is None else _abi.LOG(forward)
    check(lib.set_log(chosen, None, LOG_LEVELS[level]))
    if _log_function is None and chosen is not None:
        atexit.register(lib.set_log, None, None, LOG_LEVELS["info"])  # the function ends with the interpreter
    _log_function = chosen or _log_function
