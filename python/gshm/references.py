"""Connecting, and references: objects are pickled as these, and opened again on load."""
from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import Any, Dict, Optional, Tuple

from . import _abi
from ._abi import lib, path_text
from .arrays import Array, Shape, opened
from .client import Client
from .dtypes import UINT8, dtype as to_dtype
from .errors import Error, check, make_error
from .objects import Object
from .waiting import milliseconds


def connect(dir: Any = None, *, timeout: float = 2.0) -> Client:
    """Connects to the gshmd at the runtime folder: `dir`, else $GSHM_DIR, else /run/gshm for root, else
    $XDG_RUNTIME_DIR/gshm. The timeout (seconds) also bounds later reconnects. NotRunning says how to start one."""
    options = _abi.ConnectOptions(timeout_ms=milliseconds(timeout), dir=None if dir is None else path_text(dir))
    handle = ctypes.c_void_p()
    check(lib.connect(ctypes.byref(options), ctypes.byref(handle)))
    return Client(handle.value or 0)


def default_client() -> Client:
    """The connection of this process to the daemon that connect() finds."""
    buffer = ctypes.create_string_buffer(4096)
    check(lib.runtime_dir(buffer, len(buffer)))
    return shared_client(os.fsdecode(buffer.value))


_shared: Dict[Tuple[int, str], Client] = {}
_shared_lock = threading.Lock()
os.register_at_fork(after_in_child=_shared_lock._at_fork_reinit)  # type: ignore[attr-defined]


def shared_client(dir: str) -> Client:
    """The connection of this process that references use. A forked child makes its own."""
    with _shared_lock:
        key = (os.getpid(), dir)
        client = _shared.get(key)
        if client is None or client._connection is None:
            client = _shared[key] = connect(dir)
        return client


def open_reference(
    dir: str,
    instance: int,
    id: int,
    name: Optional[str],
    write: bool,
    offset: Optional[int],
    shape: Shape,
    dtype: str,
) -> Array:
    """Opens what was pickled: the whole object without an offset, else an array in it."""
    client = shared_client(dir)
    if client.daemon().instance != instance:
        raise make_error(errno.ESTALE, f"the gshmd at {dir} is another one than when the object was pickled", name)
    connection = client._need()
    try:
        lease = opened(lib.open_id, connection.handle, id, _abi.WRITE if write else 0, name=name, ordered=True)
    except Error as error:
        if not write or error.errno != errno.EPERM:
            raise
        write = False  # sealed since
        lease = opened(lib.open_id, connection.handle, id, 0, name=name, ordered=True)
    kind = to_dtype(dtype)
    if offset is None:
        return Object(client, lease, shape, kind, name=name, writable=write)
    whole = Object(client, lease, (lease.size_bytes,), UINT8, name=name, writable=write)
    return Array(lease, shape, kind, offset, write, whole._origin)
