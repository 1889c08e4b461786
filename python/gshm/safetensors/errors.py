"""The error of the original."""
from __future__ import annotations

import contextlib
import errno
from typing import Iterator

from ..errors import Error


class SafetensorError(Exception):
    """Something in a file, or in the arguments, is wrong."""


SafetensorError.__module__ = "gshm.safetensors"


@contextlib.contextmanager
def type_errors() -> Iterator[None]:
    """A type that the framework does not have is a SafetensorError."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise SafetensorError(f"Dtype not understood: {error}") from None


@contextlib.contextmanager
def header_errors(doing: str) -> Iterator[None]:
    """A malformed header is a SafetensorError."""
    try:
        yield
    except Error as error:
        if error.errno in (errno.EBADMSG, errno.EINVAL):
            raise SafetensorError(f"{doing}: {error.strerror}") from None
        raise
