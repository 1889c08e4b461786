"""Loading safetensors files: once for all processes (docs/tensors.md)."""
from __future__ import annotations

import ctypes
import errno
import operator
import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union

from . import _abi
from ._abi import lib, name_of, optional_text, path_text, text
from .arrays import Array, Lease
from .client import Client
from .collecting import paused
from .dtypes import DTYPES, UINT8
from .errors import Denied, Error, NotFound, check
from .lifetimes import Lifetime, lifetime_of
from .objects import Object
from .references import default_client
from .tables import ATTRIBUTE, TYPES, Table, Tensor
from .transfers import Progress
from .waiting import milliseconds

Slice = Tuple[int, int, int]  # dimension, begin, end
Slices = Union[Mapping[str, Slice], Callable[[str, Tuple[int, ...]], Optional[Slice]]]
Filter = Callable[[str], Any]


class Part(NamedTuple):
    """The tensors of one file on one device."""

    object: Object
    table: Table
    file: str
    shared: bool  # it was loaded already: nothing was read
    read_bytes: int


T = TypeVar("T")


class Model(Dict[str, T]):
    """Names to arrays, or to tensors. Those of a file and device share one lease."""

    parts: List[Part]

    @property
    def metadata(self) -> Dict[str, str]:
        """Of all files."""
        found: Dict[str, str] = {}
        for part in self.parts:
            found.update(part.table.metadata)
        return found

    @property
    def read_bytes(self) -> int:
        """Read from files by this call."""
        return sum(part.read_bytes for part in self.parts)


def array_of(part: Part, tensor: Tensor) -> Array:
    """Types that arrays do not have are bytes."""
    kind = TYPES[tensor.dtype][1]
    chosen = DTYPES.get(kind or "", UINT8)
    opened = part.object
    return Array(opened._need(), tensor.packed_shape, chosen, tensor.offset, False, opened._origin)


def device_for(name: str, device_map: Mapping[str, Any]) -> Any:
    """The device of the longest prefix, in whole parts of the name, as in transformers."""
    prefix = name
    while prefix not in device_map:
        if not prefix:
            raise ValueError(f"device_map has no device for {name}; the prefix '' is for all others")
        prefix = prefix.rpartition(".")[0]
    return device_map[prefix]


def check_slice(tensor: Tensor, part: Slice) -> None:
    """Numbers that do not fit would become others in the C interface."""
    text = f"the slice {part!r} of {tensor.name}"
    try:
        dimension, begin, end = map(operator.index, part)
    except (TypeError, ValueError):
        raise ValueError(f"{text} is not (dimension, begin, end)") from None
    if not 0 <= dimension < len(tensor.shape):
        raise ValueError(f"{text} has a dimension that its shape {list(tensor.shape)} has not")
    if not 0 <= begin <= end <= tensor.shape[dimension]:
        raise ValueError(f"{text} is not within its shape {list(tensor.shape)}")


def choose(
    path: Any, filter: Optional[Filter], slice: Optional[Slices], device_map: Optional[Mapping[str, Any]]
) -> Optional[List[Tuple[str, Optional[Slice], Any]]]:
    """The selected tensors with slices and devices; None: all of them."""
    if filter is None and slice is None and device_map is None:
        return None
    chosen = []
    left = set(slice) if isinstance(slice, Mapping) else set()
    for one in Table.of_path(path).tensors:
        if filter is not None and not filter(one.name):
            continue
        part = slice.get(one.name) if isinstance(slice, Mapping) else slice(one.name, one.shape) if slice else None
        left.discard(one.name)
        if part is not None:
            check_slice(one, part)
        chosen.append((one.name, part, None if device_map is None else device_for(one.name, device_map)))
    if left:
        raise ValueError(f"slice= names tensors that are not there: {', '.join(sorted(left))}")
    return chosen


def _choices(chosen: List[Tuple[str, Optional[Slice], Any]]) -> Any:
    array = (_abi.TensorChoice * max(len(chosen), 1))()
    for slot, (name, part, device) in zip(array, chosen):
        slot.struct_size, slot.name, slot.device = ctypes.sizeof(slot), text(name), optional_text(device)
        slot.dimension, slot.begin, slot.end = part if part is not None else (-1, 0, 0)
    return array


def load_parts(
    client: Client,
    path: Any,
    device: Optional[str],
    name: Optional[str],
    chosen: Optional[List[Tuple[str, Optional[Slice], Any]]],
    *,
    mode: int = 0,
    timeout: Optional[float] = None,
    existing: bool = False,
    map: bool = True,
    progress: Optional[Progress] = None,
    lifetime: Lifetime = Lifetime(0, 0),
    evictable: bool = False,
) -> List[Part]:
    raised: List[BaseException] = []

    def report(_: Any, done: int, total: int) -> int:  # signals are served here
        try:
            if progress is not None:
                progress(done, total)
        except BaseException as error:
            raised.append(error)
        return len(raised)

    array = None if chosen is None else _choices(chosen)
    spec = _abi.LoadSpec(
        flags=(0 if map else _abi.NO_MAP)
        | (_abi.LOAD_EXISTING if existing else 0)
        | (_abi.EVICTABLE if evictable else 0)
        | lifetime.flags,
        path=path_text(path),
        name=optional_text(name),
        device=optional_text(device),
        mode=mode,
        timeout_ms=-1 if timeout is None else milliseconds(timeout),
        choices=None if array is None else ctypes.addressof(array),
        choice_count=0 if chosen is None else len(chosen),
        progress=_abi.PROGRESS(report),
        ttl_ms=lifetime.ttl_ms,
    )
    model = ctypes.c_void_p()
    try:
        check(lib.load(client._need().handle, ctypes.byref(spec), ctypes.byref(model)), os.fsdecode(path))
    except Error as error:
        if raised and error.errno == errno.ECANCELED:
            raise raised[0] from None
        raise
    try:
        return [_part(client, model, index) for index in range(lib.model_count(model))]
    finally:
        lib.model_close(model)


def _part(client: Client, model: Any, index: int) -> Part:
    info = _abi.ModelPart()
    check(lib.model_get_part(model, index, ctypes.byref(info)))
    table = Table(info.tensors)
    lease = Lease(lib.model_take(model, index) or 0)
    opened = Object(
        client, lease, (lease.size_bytes,), UINT8, name=name_of(info.name or b""), writable=False, sealed=True
    )
    return Part(opened, table, os.fsdecode(info.file or b""), bool(info.flags & _abi.PART_SHARED), info.read_bytes)


def load(
    path: Any,
    device: Optional[str] = None,
    *,
    name: Optional[str] = None,
    filter: Optional[Filter] = None,
    slice: Optional[Slices] = None,
    device_map: Optional[Mapping[str, str]] = None,
    progress: Optional[Progress] = None,
    client: Optional[Client] = None,
    mode: int = 0,
    timeout: Optional[float] = None,
    existing: bool = False,
    ttl: Optional[float] = None,
    ttl_unused: Optional[float] = None,
    ephemeral: bool = False,
    evictable: bool = False,
) -> Model[Array]:
    """The tensors of a safetensors file, or of a folder with such files, as arrays: read once for all processes, and then
    shared. They are read-only; copy() of an array is private.

    `device` is the daemon's name of it; None: its first. `device_map` has devices for prefixes of names, "" for all others.
    `filter(name)` tells which tensors to load. `slice` is a dict of (dimension, begin, end), or a function of name and shape
    that returns one, or None for the whole tensor. Only the bytes that are needed are read. `name` is that of the object, or of
    the directory; without one it is made from the path. With `existing`, NotFound is raised if it is not loaded already.
    `ttl`, `ttl_unused`, `ephemeral` and `evictable` are those of Client.create(), for objects that this call makes."""
    connection = client or default_client()
    chosen = choose(path, filter, slice, device_map)
    parts = load_parts(
        connection, path, device, name, chosen, mode=mode, timeout=timeout, existing=existing, progress=progress,
        lifetime=lifetime_of(ttl, ttl_unused, ephemeral),
        evictable=evictable,
    )
    model: Model[Array] = Model()
    model.parts = parts
    with paused():
        for part in parts:
            for tensor in part.table.tensors:
                model[tensor.name] = array_of(part, tensor)
    return model


def _is_loaded(client: Client, name: str) -> bool:
    """Checkpoints and shared modules have tensors too, but no identity of a file."""
    import json  # takes time that a program without loads does not spend

    try:
        facts = json.loads(client.attributes(name)[ATTRIBUTE])
    except (KeyError, ValueError, NotFound):
        return False
    return isinstance(facts, dict) and facts.get("format") == 1 and bool(facts.get("identity"))


def _further_names(client: Client, name: str) -> List[str]:
    """Those of the same file on further devices, and of selections of its tensors."""
    above, slash, last = name.rpartition("/")
    endings = re.compile(re.escape(last) + r"(@[^+]+)?(\+[0-9a-f]{12})?")
    try:
        entries = client.list(above)
    except (NotFound, Denied):
        return []
    return [
        above + slash + one for one, info in entries if one != last and info.kind == "object" and endings.fullmatch(one)
    ]


def unload(name: str, *, client: Optional[Client] = None) -> List[str]:
    """Removes the objects of a loaded file (on all devices, and all selections), or those in a directory, and returns their
    names. Other objects there stay, also checkpoints and shared modules. Processes that hold them keep them."""
    connection = client or default_client()
    try:
        names, there = [name], connection.stat(name)
    except NotFound:
        names, there = [], None
    if there is not None and there.kind == "directory":
        names = [f"{name}/{one}" for one, _ in connection.list(name, recursive=True)]
    elif there is None or _is_loaded(connection, name):
        names += _further_names(connection, name)
    loaded = [one for one in names if _is_loaded(connection, one)]
    if not loaded:
        raise NotFound(errno.ENOENT, f"nothing is loaded at {name}")
    for error in connection.unlink_many(loaded):
        if error is not None and not isinstance(error, NotFound):
            raise error
    return loaded
