"""gshm for torch: modules and states in shared memory, pools, and tensors that are sent to other processes by reference.

docs/python.md has the whole interface. Tensors over sealed memory must not be written: torch has no read-only tensors, and a
write ends the process (host) or the CUDA context.
"""
from __future__ import annotations

from .checkpoints import Saved, load_state, save, store
from .loading import load, load_file_state
from .modules import Mismatch, attach_module, share_module
from .pools import TorchPool, use_pool
from .reductions import install as _install

__all__ = [
    "Mismatch", "Saved", "TorchPool", "attach_module", "load", "load_file_state", "load_state", "save", "share_module", "store",
    "use_pool",
]  # fmt: skip

_install()
