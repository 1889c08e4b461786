"""Files and bytes from memory of the host."""
from __future__ import annotations

import ctypes
import os
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..tables import NAMES, Table, Tensor
from .errors import SafetensorError, header_errors

BLOCK = 64 << 20


class TensorSpec:
    """A tensor in memory of the host, which the caller keeps valid."""

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        kind = str(dtype)
        if kind not in NAMES:
            raise SafetensorError(f'Unknown dtype "{kind}". Supported dtypes: {", ".join(NAMES)}')
        self.dtype, self.shape = NAMES[kind], tuple(int(one) for one in shape)
        if self.dtype == "F4" and self.shape:
            self.shape = (*self.shape[:-1], self.shape[-1] * 2)
        self.data_ptr, self.data_len = data_ptr, data_len


def plan(tensors: Mapping[str, TensorSpec], metadata: Optional[Mapping[str, str]]) -> Table:
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("argument 'metadata': names and values are texts")
    with header_errors("Error while serializing"):
        table = Table.layout([Tensor(name, one.dtype, one.shape) for name, one in tensors.items()], metadata, file=True)
    for one in table.tensors:
        given = tensors[one.name].data_len
        if given != one.nbytes:
            shape = ", ".join(map(str, one.shape))
            raise SafetensorError(
                f"Error while serializing: tensor of type {one.dtype} and shape ({shape}) can't be created from {given} bytes"
            )
    return table


def blocks(table: Table, tensors: Mapping[str, TensorSpec]) -> Iterator[Any]:
    """The bytes of the file, without copies of the tensors."""
    yield table.header
    for one in table.tensors:
        for at in range(0, one.nbytes, BLOCK):
            size = min(BLOCK, one.nbytes - at)
            yield (ctypes.c_char * size).from_address(tensors[one.name].data_ptr + at)


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    return b"".join(bytes(one) for one in blocks(plan(tensor_dict, metadata), tensor_dict))


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec], filename: Any, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Writes beside the file, which is replaced when the new one is complete."""
    table = plan(tensor_dict, metadata)
    path = os.path.realpath(os.fspath(filename))
    mask = os.umask(0)
    os.umask(mask)
    try:
        fd, beside = tempfile.mkstemp(prefix=".", suffix=".safetensors", dir=os.path.dirname(path))
        try:
            with os.fdopen(fd, "wb") as file:
                for one in blocks(table, tensor_dict):
                    file.write(one)
            os.chmod(beside, 0o666 & ~mask)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise SafetensorError(f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})") from None


def deserialize(data: bytes) -> List[Tuple[str, Dict[str, Any]]]:
    """The tensors of a file in memory: names, and shapes, types and bytes."""
    with header_errors("Error while deserializing"):
        table = Table.of_memory(data)
    view = memoryview(data)
    return [
        (
            one.name,
            {"shape": list(one.shape), "dtype": one.dtype, "data": bytearray(view[one.offset : one.offset + one.nbytes])},
        )
        for one in table.tensors
    ]
