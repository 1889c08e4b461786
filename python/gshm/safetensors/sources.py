"""The tensors of a loaded file for a framework. On the host the memory is mapped privately: what is written is copied then."""
from __future__ import annotations

import importlib
import mmap
import os
from typing import Any, Dict, Optional

from ..arrays import Lease
from ..client import Client
from ..loads import Part
from ..tables import TYPES, Tensor
from .errors import SafetensorError, type_errors

PAGE = mmap.PAGESIZE


class PrivateMap(mmap.mmap):
    """A private mapping of an object on the host. Its buffers keep the lease."""

    lease: Lease
    begin: int  # of the object in it


def map_privately(part: Part) -> PrivateMap:
    handle = part.object.export_fd()
    try:
        at = handle.offset // PAGE * PAGE
        made = PrivateMap(
            handle.value,
            handle.offset - at + handle.size_bytes,
            flags=mmap.MAP_PRIVATE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
            offset=at,
        )
    finally:
        os.close(handle.value)
    made.lease = part.object._need()
    made.begin = handle.offset - at
    return made


def torch_device_name(client: Client, where: str) -> str:
    from ..torch.views import daemon_device

    return daemon_device(client, where)


class TorchSource:
    def __init__(self, part: Optional[Part], shared: bool) -> None:
        from ..torch.views import whole

        self._tensors: Dict[str, Tensor] = {one.name: one for one in part.table.tensors} if part else {}
        self._bytes: Any = None  # of a GPU
        self._map: Optional[PrivateMap] = None  # of the host
        self._copies = False
        if part is None:
            return
        if part.object.device == "host":
            self._map = map_privately(part)
        else:
            self._bytes, self._copies = whole(part.object), not shared

    def _view(self, name: str) -> Any:
        from ..torch.views import torch, view

        tensor, everything = self._tensors[name], self._bytes
        if self._map is not None and tensor.nbytes:  # a storage of its own size, which torch.save() writes whole
            begin = self._map.begin + tensor.offset
            everything = torch.frombuffer(self._map, dtype=torch.uint8, count=tensor.nbytes, offset=begin)
            tensor = tensor._replace(offset=0)
        with type_errors():
            return view(everything, tensor)

    def get(self, name: str) -> Any:
        return self.part(name, ...)

    def part(self, name: str, index: Any) -> Any:
        whole = self._view(name)
        found = whole if index is ... else whole[index]
        return found.clone() if self._copies else found


class NumpySource:
    def __init__(self, part: Optional[Part]) -> None:
        self._tensors: Dict[str, Tensor] = {one.name: one for one in part.table.tensors} if part else {}
        self._map = map_privately(part) if part else None

    def get(self, name: str) -> Any:
        return numpy_array(self._tensors[name], self._map, self._map.begin if self._map else 0).copy()


def numpy_array(tensor: Tensor, buffer: Any, begin: int) -> Any:
    numpy: Any = importlib.import_module("numpy")
    kind: Any = TYPES[tensor.dtype][1]
    try:
        chosen = numpy.dtype(kind or "none")  # that of None is float64
    except TypeError:
        try:
            ml_dtypes: Any = importlib.import_module("ml_dtypes")
            chosen = numpy.dtype(getattr(ml_dtypes, kind or "none"))
        except (ImportError, AttributeError, TypeError):
            raise SafetensorError(f"Dtype not understood: {tensor.dtype}; the package ml_dtypes may have it") from None
    with type_errors():
        shape = tensor.packed_shape
    count = tensor.nbytes // chosen.itemsize
    if count == 0:
        return numpy.empty(shape, chosen)
    return numpy.frombuffer(buffer, chosen, count, begin + tensor.offset).reshape(shape)
