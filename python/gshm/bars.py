"""A progress bar for terminals."""
from __future__ import annotations

import sys
import time
from typing import Any, Optional

from .transfers import Progress


class Bar:
    """Progress of bytes, on one line of stderr. It appears if the work takes longer than a moment."""

    MOMENT = 0.3
    WIDTH = 30

    def __init__(self, title: str, stream: Any = None) -> None:
        self._title = title
        self._stream = stream or sys.stderr
        self._begin = time.monotonic()
        self._next = self._begin + self.MOMENT
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next and not (self._drawn and done == total):
            return
        self._next = now + 0.1
        self._drawn = True
        share = done / total if total else 0.0
        full = int(share * self.WIDTH)
        speed = done / max(now - self._begin, 1e-9) / 1e9
        bar = "#" * full + "." * (self.WIDTH - full)
        self._stream.write(f"\r{self._title} [{bar}] {done / 1e9:.1f}/{total / 1e9:.1f} GB, {speed:.1f} GB/s ")
        self._stream.flush()

    def close(self) -> None:
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()


def bar_for(progress: Any, title: str) -> Optional[Progress]:
    """The function to call: that of the caller, a bar if stderr is a terminal and nothing is given, or None."""
    if callable(progress):
        given: Progress = progress
        return given
    wanted = sys.stderr is not None and sys.stderr.isatty() if progress is None else bool(progress)
    return Bar(title) if wanted else None
