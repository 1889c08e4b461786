"""Limits on accounts: what a user, a group or the objects below a directory may have. docs/limits.md."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional

from . import _abi
from ._abi import lib, name_of, optional_text
from .errors import check
from .shares import Party, id_of

_KINDS: Dict[str, int] = {"user": 1, "group": 2, "directory": 3, "reserve": 4}
_FIELDS = {"bytes": 1, "soft_bytes": 2, "objects": 4, "soft_objects": 8, "grace_s": 16}
_USED, _ID, _OWN = 1, 2, 4


class Limit(NamedTuple):
    """A limit and the use of its account. 0: no limit."""

    kind: str  # "user", "group", "directory" or "reserve"
    id: int  # uid or gid
    path: Optional[str]  # of the directory
    device: Optional[str]  # None: all devices together
    bytes: int
    soft_bytes: int
    objects: int
    soft_objects: int
    grace_s: int
    percent: int  # of a reserve
    used_bytes: int
    used_objects: int
    unlinked_bytes: int
    bytes_until_ns: int  # from this time on the soft limit is a hard one; 0: it is not exceeded
    objects_until_ns: int


def _account(user: Optional[Party], group: Optional[Party], directory: Any) -> Dict[str, Any]:
    given = {"user": user, "group": group, "directory": directory}
    named = [kind for kind, value in given.items() if value is not None]
    if len(named) != 1:
        raise ValueError("name one of user, group and directory")
    kind = named[0]
    if kind == "directory":
        return {"kind": _KINDS[kind], "path": optional_text(directory)}
    return {"kind": _KINDS[kind], "id": id_of(given[kind], kind == "group")}


def set_limit(
    connection: Any,
    user: Optional[Party],
    group: Optional[Party],
    directory: Any,
    device: Optional[str],
    **values: Optional[int],
) -> None:
    fields = sum(_FIELDS[name] for name, value in values.items() if value is not None)
    if fields == 0:
        raise ValueError("no limit is given")
    given = {name: int(value) for name, value in values.items() if value is not None}
    limit = _abi.Limit(fields=fields, device=optional_text(device), **_account(user, group, directory), **given)
    check(lib.limit_set(connection.handle, ctypes.byref(limit)))


def set_reserve(connection: Any, device: str, bytes: Optional[int], percent: Optional[int]) -> None:
    if (bytes is None) == (percent is None):
        raise ValueError("a reserve is in bytes or in percent")
    limit = _abi.Limit(
        kind=_KINDS["reserve"], fields=1, device=optional_text(device), bytes=bytes or 0, percent=percent or 0
    )
    check(lib.limit_set(connection.handle, ctypes.byref(limit)))


def list_limits(
    connection: Any,
    user: Optional[Party],
    group: Optional[Party],
    directory: Any,
    device: Optional[str],
    used: bool,
    own: bool,
) -> List[Limit]:
    one = not (user is None and group is None and directory is None)
    which = _abi.Limit(device=optional_text(device), **(_account(user, group, directory) if one else {}))
    flags = (_USED if used else 0) | (_ID if one else 0) | (_OWN if own else 0)
    found = ctypes.c_void_p()
    check(lib.limits(connection.handle, ctypes.byref(which), flags, ctypes.byref(found)))
    kinds = {number: kind for kind, number in _KINDS.items()}
    try:
        limits = []
        for index in range(lib.limit_list_count(found)):
            item = _abi.Limit.from_address(lib.limit_list_item(found, index))
            values = {field: getattr(item, field) for field in Limit._fields if field != "kind"}
            for text in ("path", "device"):
                values[text] = None if values[text] is None else name_of(values[text])
            limits.append(Limit(kind=kinds[item.kind], **values))
        return limits
    finally:
        lib.limit_list_free(found)
