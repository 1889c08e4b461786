"""Sharing with single users and groups (docs/sharing.md)."""
from __future__ import annotations

import ctypes
import grp
import os
import pwd
from typing import Any, Iterable, List, NamedTuple, Sequence, Union

from . import _abi
from ._abi import lib, text

Party = Union[str, int]

KINDS = {1: "owner", 2: "user", 4: "owning_group", 8: "group", 16: "mask", 32: "other"}
_TAGS = {kind: tag for tag, kind in KINDS.items()}
_USER, _GROUP = 2, 8
_DEFAULT = 1
_PARENTS, _WRITE, _RECURSIVE = 1 << 0, _abi.WRITE, _abi.RECURSIVE


class AclEntry(NamedTuple):
    kind: str  # "owner", "user", "owning_group", "group", "mask", "other"
    rights: int  # 4: read; 2: write; 1: search a directory
    id: int = 0  # of a user or group

    @classmethod
    def read(cls, entry: _abi.AclEntry) -> AclEntry:
        return cls(KINDS.get(entry.tag, str(entry.tag)), entry.rights, entry.id)


class Share(NamedTuple):
    changed: int  # objects and directories
    blocked_by: str  # the first directory above that one of them may not search; "": none


def id_of(party: Party, is_group: bool) -> int:
    """Of a user or group, by name or number."""
    if not isinstance(party, str):
        return int(party)
    try:
        return grp.getgrnam(party).gr_gid if is_group else pwd.getpwnam(party).pw_uid
    except KeyError:
        raise LookupError(f"there is no {'group' if is_group else 'user'} {party!r}") from None


def _parties(users: Union[Party, Iterable[Party]], groups: Union[Party, Iterable[Party]]) -> Any:
    entries: List[_abi.AclEntry] = []
    for tag, some in ((_USER, users), (_GROUP, groups)):
        for one in (some,) if isinstance(some, (str, int)) else some:
            entries.append(_abi.AclEntry(tag, 0, id_of(one, tag == _GROUP)))
    return (_abi.AclEntry * len(entries))(*entries)


class Shares:
    """The part of Client for ACLs."""

    def _call(self, function: Any, *arguments: Any, name: str) -> int:
        raise NotImplementedError

    def share(
        self,
        name: str,
        users: Union[Party, Iterable[Party]] = (),
        groups: Union[Party, Iterable[Party]] = (),
        *,
        write: bool = False,
        recursive: bool = False,
        parents: bool = False,
    ) -> Share:
        """Lets users and groups, by name or number, read an object, or a directory and what is made in it later. `recursive`:
        also what is in it now. `parents`: they may also search the directories above."""
        entries = _parties(users, groups)
        flags = (_WRITE if write else 0) | (_RECURSIVE if recursive else 0) | (_PARENTS if parents else 0)
        info = _abi.ShareInfo()
        self._call(lib.share, text(name), entries, len(entries), flags, ctypes.byref(info), name=name)
        return Share(info.changed, os.fsdecode(info.blocked_by))

    def unshare(
        self,
        name: str,
        users: Union[Party, Iterable[Party]] = (),
        groups: Union[Party, Iterable[Party]] = (),
        *,
        recursive: bool = False,
    ) -> int:
        """Ends it; without users and groups for all of them. Returns the number of changed objects and directories."""
        entries = _parties(users, groups)
        info = _abi.ShareInfo()
        flags = _RECURSIVE if recursive else 0
        self._call(lib.unshare, text(name), entries, len(entries), flags, ctypes.byref(info), name=name)
        return int(info.changed)

    def acl(self, name: str, *, default: bool = False) -> List[AclEntry]:
        """Who may do what. `default`: what is inherited by new entries of the directory; empty: nothing."""
        entries = (_abi.AclEntry * 511)()
        count = ctypes.c_size_t()
        flags = _DEFAULT if default else 0
        self._call(lib.acl_get, text(name), flags, entries, len(entries), ctypes.byref(count), name=name)
        return [AclEntry.read(entry) for entry in entries[: min(count.value, len(entries))]]

    def set_acl(self, name: str, entries: Sequence[AclEntry], *, default: bool = False) -> None:
        """Replaces it; no entries: removes it. See gshm_acl_set() in gshm.h."""
        told = (_abi.AclEntry * len(entries))(*[_abi.AclEntry(_TAGS[one.kind], one.rights, one.id) for one in entries])
        self._call(lib.acl_set, text(name), _DEFAULT if default else 0, told, len(told), name=name)
