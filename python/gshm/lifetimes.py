"""How long objects live, as arguments of calls that make them."""
from __future__ import annotations

import math
from typing import NamedTuple, Optional

from . import _abi


def ttl_ms(seconds: float) -> int:
    """Never 0, which would mean that the object never expires."""
    if not seconds > 0:
        raise ValueError(f"a ttl is more than 0 seconds, not {seconds}")
    return min(max(math.ceil(seconds * 1000), 1), 2**64 - 1) if math.isfinite(seconds) else 2**64 - 1


class Lifetime(NamedTuple):
    ttl_ms: int
    flags: int


def lifetime_of(ttl: Optional[float], ttl_unused: Optional[float], ephemeral: bool) -> Lifetime:
    if ttl is not None and ttl_unused is not None:
        raise ValueError("ttl and ttl_unused exclude each other")
    seconds = ttl if ttl_unused is None else ttl_unused
    flags = (_abi.CREATE_EPHEMERAL if ephemeral else 0) | (0 if ttl_unused is None else _abi.CREATE_TTL_UNUSED)
    return Lifetime(0 if seconds is None else ttl_ms(seconds), flags)
