"""Errors: subclasses of OSError with errno and the library's sentence, and of the built-in class for that errno."""
from __future__ import annotations

import errno
from typing import Dict, NoReturn, Optional, Type

from ._abi import lib


class Error(OSError):
    """A call of libgshm failed. `errno` is the reason, `strerror` the sentence, which has the name of `filename`."""

    def __str__(self) -> str:
        return super().__str__() if self.strerror is None else f"[Errno {self.errno}] {self.strerror}"


class NotFound(Error, FileNotFoundError):
    """ENOENT: no such name, or the caller may not see it."""


class Exists(Error, FileExistsError):
    """EEXIST"""


class Denied(Error, PermissionError):
    """EACCES, EPERM: no right, or the object is sealed."""


class Timeout(Error, TimeoutError):
    """ETIMEDOUT"""


class NotRunning(Error, ConnectionRefusedError):
    """ECONNREFUSED: no gshmd runs there. The sentence says how to start one."""


class ConnectionLost(Error, ConnectionResetError):
    """ECONNRESET: gshmd died during a call that must not run twice. The call may have taken effect."""


class Invalid(Error, ValueError):
    """EINVAL, EILSEQ, ENAMETOOLONG, E2BIG: an argument is wrong."""


class IsDirectory(Error, IsADirectoryError):
    """EISDIR"""


class NotDirectory(Error, NotADirectoryError):
    """ENOTDIR"""


class Forked(Error, ChildProcessError):
    """ECHILD: the handle was made before fork(). Connect again in the child."""


class Busy(Error):
    """EBUSY: in use by another process."""


class Full(Error):
    """ENOSPC, ENOMEM, EDQUOT: no room on the device, or above a limit."""


class Stale(Error):
    """ESTALE: the gshmd that knew the object has freed everything."""


class OwnerDead(Error):
    """EOWNERDEAD: the writer of a fence died before its work was complete."""


class Unsupported(Error, NotImplementedError):
    """EOPNOTSUPP: the device or the running gshmd cannot do it."""


_CLASSES: Dict[int, Type[Error]] = {
    errno.ENOENT: NotFound,
    errno.EEXIST: Exists,
    errno.EACCES: Denied,
    errno.EPERM: Denied,
    errno.ETIMEDOUT: Timeout,
    errno.ECONNREFUSED: NotRunning,
    errno.ECONNRESET: ConnectionLost,
    errno.EINVAL: Invalid,
    errno.EILSEQ: Invalid,
    errno.ENAMETOOLONG: Invalid,
    errno.E2BIG: Invalid,
    errno.EISDIR: IsDirectory,
    errno.ENOTDIR: NotDirectory,
    errno.ECHILD: Forked,
    errno.EBUSY: Busy,
    errno.ENOSPC: Full,
    errno.ENOMEM: Full,
    errno.EDQUOT: Full,
    errno.ESTALE: Stale,
    errno.EOWNERDEAD: OwnerDead,
    errno.EOPNOTSUPP: Unsupported,
}


def make_error(code: int, message: str, name: Optional[str] = None) -> Error:
    """The error of an errno (positive)."""
    of_class = _CLASSES.get(code, Error)
    return of_class(code, message) if name is None else of_class(code, message, name)


def fail(status: int, name: Optional[str] = None) -> NoReturn:
    """Raises the error of this thread's last call, which returned -errno."""
    raise make_error(-status, lib.last_error().decode("utf-8", "replace"), name)


def check(status: int, name: Optional[str] = None) -> int:
    if status < 0:
        fail(status, name)
    return status
