"""In the place of the package safetensors: its functions, classes and errors, on memory that gshm shares between processes.

A file is read once for all processes. Tensors are private and may be written, as those of the original: on the CPU memory is
copied when it is written, on a GPU at once. With shared(True) tensors of a GPU are the shared memory itself, for programs that
only read them.
"""
from __future__ import annotations

from typing import Any

from ..patching import original_attribute
from .errors import SafetensorError
from .opening import safe_open, shared
from .serializing import TensorSpec, deserialize, serialize, serialize_file

__version__ = "0.8.0"  # of the original whose interface this is
__all__ = ["SafetensorError", "TensorSpec", "deserialize", "safe_open", "serialize", "serialize_file", "shared"]


def __getattr__(name: str) -> Any:
    return original_attribute("safetensors", name)
