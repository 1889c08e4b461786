"""A pool of gshm for torch's allocator."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional

from .. import _abi
from .._abi import lib
from ..errors import check
from ..pools import PoolStats, pool_options, read_stats
from .views import torch


def check_torch() -> None:
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available():
        raise RuntimeError(
            f"gshm.torch.use_pool() needs a GPU: torch {torch.__version__} finds none. For memory of the CPU there are "
            "gshm.connect().pool('host') and its arrays"
        )
    if not hasattr(cuda, "MemPool") or not hasattr(cuda, "use_mem_pool"):
        raise RuntimeError(f"gshm.torch.use_pool() needs torch 2.5 or later; this is {torch.__version__}")


class TorchPool:
    """Tensors that are made in its `with` block are in slabs of gshm, and can be sent to other processes."""

    def __init__(
        self, name: Optional[str], device: Any, keep: bool, mode: int, slab_bytes: int, limit_bytes: int
    ) -> None:
        check_torch()
        index = torch.cuda.current_device() if device is None else torch.device(device).index or 0
        self._device = torch.device("cuda", index)
        options = pool_options(None, name, mode, slab_bytes, limit_bytes, keep)
        handle = ctypes.c_void_p()
        check(lib.malloc_pool(index, ctypes.byref(options), ctypes.byref(handle)), name)
        self._handle = handle.value or 0
        self._destroy = lib.pool_destroy
        self._allocator = torch.cuda.memory.CUDAPluggableAllocator(_abi.library_path(), "gshm_malloc", "gshm_free")
        self._pools: List[Any] = []  # torch's; those before the last are sealed
        self._blocks: List[Any] = []

    @property
    def mem_pool(self) -> Any:
        """The torch.cuda.MemPool, for torch's own calls."""
        if not self._pools:
            self._renew()
        return self._pools[-1]

    def _renew(self) -> None:
        self._pools.append(torch.cuda.MemPool(self._allocator.allocator()))

    def __enter__(self) -> TorchPool:
        block = torch.cuda.use_mem_pool(self.mem_pool, self._device)
        block.__enter__()
        self._blocks.append(block)
        return self

    def __exit__(self, *error: Any) -> None:
        self._blocks.pop().__exit__(*error)

    def seal(self) -> None:
        """The tensors made so far become immutable, and outlive the process. Waits for the GPU. Tensors that are made later
        are in other slabs."""
        if self._blocks:
            raise RuntimeError("seal() is called outside of the pool's with block")
        torch.cuda.synchronize(self._device)
        check(lib.pool_seal(self._handle))
        if self._pools:
            self._renew()  # torch would use freed memory of the sealed slabs again

    def stats(self) -> PoolStats:
        return read_stats(self._handle)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle:
            self._destroy(handle)


def use_pool(
    name: Optional[str] = None, *, device: Any = None, keep: bool = True, mode: int = 0o600, slab_bytes: int = 0,
    limit_bytes: int = 0,
) -> TorchPool:
    """A pool for a GPU, whose slabs are objects in the directory `name`, at the daemon that connect() finds. With `keep` they
    outlive the process. There is one for each GPU and process: it is made before the first use of gshm_malloc there."""
    return TorchPool(name, device, keep, mode, slab_bytes, limit_bytes)
