"""Waiting calls in slices, so that signals (Ctrl-C) are served while the library waits."""
from __future__ import annotations

import errno
import math
import time
from typing import Callable, Optional

SLICE_S = 0.25


def milliseconds(seconds: float) -> int:
    return min(max(math.ceil(seconds * 1000), 0), 2**31 - 1)


def sliced(attempt: Callable[[float], int], timeout: Optional[float]) -> int:
    """Repeats attempt(seconds) while it returns -ETIMEDOUT and time is left. None: no limit."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_S if deadline is None else min(SLICE_S, max(deadline - time.monotonic(), 0))
        status = attempt(left)
        if status != -errno.ETIMEDOUT or (deadline is not None and time.monotonic() >= deadline):
            return status
