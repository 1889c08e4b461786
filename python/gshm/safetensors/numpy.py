"""In the place of safetensors.numpy."""
from __future__ import annotations

import importlib
from typing import Any, Dict, List, Mapping, Optional

from ..patching import original_attribute
from ..tables import Table
from .errors import header_errors
from .opening import safe_open
from .serializing import TensorSpec, serialize, serialize_file
from .sources import numpy_array

__all__ = ["load", "load_file", "save", "save_file"]


def __getattr__(name: str) -> Any:
    return original_attribute("safetensors.numpy", name)


def _flatten(tensors: Mapping[str, Any], kept: List[Any]) -> Dict[str, TensorSpec]:
    numpy: Any = importlib.import_module("numpy")
    found = {}
    for name, given in tensors.items():
        array = given
        if array.dtype.byteorder == ">":
            array = array.byteswap(inplace=False).view(array.dtype.newbyteorder("<"))
        array = numpy.ascontiguousarray(array).reshape(array.shape)
        kept.append(array)
        found[name] = TensorSpec(
            dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
        )
    return found


def save(tensor_dict: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    kept: List[Any] = []
    return serialize(_flatten(tensor_dict, kept), metadata)


def save_file(tensor_dict: Mapping[str, Any], filename: Any, metadata: Optional[Mapping[str, str]] = None) -> None:
    kept: List[Any] = []
    serialize_file(_flatten(tensor_dict, kept), filename, metadata)


def load(data: bytes) -> Dict[str, Any]:
    with header_errors("Error while deserializing"):
        table = Table.of_memory(data)
    copy = bytearray(data)  # arrays that can be written
    return {one.name: numpy_array(one, copy, 0) for one in table.tensors}


def load_file(filename: Any, *, backend: str = "mmap") -> Dict[str, Any]:
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()
