"""Tables of tensors: the header of a safetensors file, and of an object in the same form, whose tensors are aligned."""
from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from . import _abi
from ._abi import lib, path_text, text
from .collecting import paused
from .errors import check

if TYPE_CHECKING:
    from .objects import Object

ATTRIBUTE = "gshm.tensors"  # marks objects in this form

# The names of types in headers, in the order of the safetensors library: name, bits, name of the type in torch and here.
TYPES: Dict[str, Tuple[int, Optional[str]]] = {
    "BOOL": (8, "bool"),
    "F4": (4, "float4_e2m1fn_x2"),  # two in a byte
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
    "U8": (8, "uint8"),
    "I8": (8, "int8"),
    "F8_E5M2": (8, "float8_e5m2"),
    "F8_E4M3": (8, "float8_e4m3fn"),
    "F8_E8M0": (8, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": (8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "float8_e5m2fnuz"),
    "I16": (16, "int16"),
    "U16": (16, "uint16"),
    "F16": (16, "float16"),
    "BF16": (16, "bfloat16"),
    "I32": (32, "int32"),
    "U32": (32, "uint32"),
    "F32": (32, "float32"),
    "C64": (64, "complex64"),
    "F64": (64, "float64"),
    "I64": (64, "int64"),
    "U64": (64, "uint64"),
}
_BELOW_A_BYTE = ("F4", "F6_E2M3", "F6_E3M2")
NAMES = {kind: name for name, (_, kind) in TYPES.items() if kind}  # of types in torch, for headers


class Tensor(NamedTuple):
    name: str
    dtype: str  # as in the header
    shape: Tuple[int, ...]
    offset: int = 0  # from the beginning of the file or object
    nbytes: int = 0
    file: int = 0  # index in the table

    @property
    def packed_shape(self) -> Tuple[int, ...]:
        """The shape in elements of the type that frameworks have: types below a byte are packed in the last dimension."""
        if self.dtype not in _BELOW_A_BYTE:
            return self.shape
        if self.dtype == "F4" and self.shape and self.shape[-1] % 2:
            raise ValueError(f"{self.name}: rows of {self.shape[-1]} numbers of F4 do not end at a byte")
        return (*self.shape[:-1], self.shape[-1] // 2) if self.dtype == "F4" and self.shape else (self.nbytes,)


class Table:
    """Tensors with their places, in the order of files and bytes. The library reads and makes the headers."""

    def __init__(self, handle: int) -> None:
        """Copies a gshm_tensors, which stays the caller's."""
        count = lib.tensors_count(handle)
        infos = (_abi.TensorInfo * max(count, 1))()
        infos[0].struct_size = ctypes.sizeof(_abi.TensorInfo)
        if count:
            check(lib.tensors_get(handle, 0, infos, count, None))
        with paused():
            self.tensors = list(_read_infos(infos, count))
        files = range(lib.tensors_file_count(handle))
        self.files: List[str] = [os.fsdecode(lib.tensors_file(handle, one)) for one in files]
        self.sizes: List[int] = [lib.tensors_size(handle, one) for one in files]
        self.headers: List[bytes] = [_read_header(handle, one) for one in files]
        self.all_metadata: List[Dict[str, str]] = [_read_metadata(handle, one) for one in files]

    @classmethod
    def _made(cls, function: Any, *arguments: Any, name: Optional[str] = None) -> Table:
        handle = ctypes.c_void_p()
        check(function(*arguments, ctypes.byref(handle)), name)
        try:
            return cls(handle.value or 0)
        finally:
            lib.tensors_free(handle)

    @classmethod
    def of_path(cls, path: Any) -> Table:
        """Of a safetensors file, or a folder with such files."""
        return cls._made(lib.tensors_of_path, path_text(path), name=os.fsdecode(path))

    @classmethod
    def of_memory(cls, data: Any) -> Table:
        """Of the bytes of a file."""
        block = data if isinstance(data, bytes) else bytes(data)
        return cls._made(lib.tensors_of_memory, block, len(block))

    @classmethod
    def of_object(cls, opened: Object) -> Table:
        made = ctypes.c_void_p()
        opened._need().call(lib.tensors_of_object, ctypes.byref(made))
        try:
            return cls(made.value or 0)
        finally:
            lib.tensors_free(made)

    @classmethod
    def layout(cls, tensors: Iterable[Tensor], metadata: Optional[Mapping[str, str]] = None, *, file: bool = False) -> Table:
        """Places for new tensors, of which name, type and shape are used: in an object, or in a file."""
        from .attributes import attribute_array

        many = list(tensors)
        infos = (_abi.TensorInfo * max(len(many), 1))()
        shapes = []
        for info, one in zip(infos, many):
            shapes.append((ctypes.c_uint64 * len(one.shape))(*one.shape))
            info.struct_size = ctypes.sizeof(_abi.TensorInfo)
            info.dimensions, info.shape = len(one.shape), ctypes.addressof(shapes[-1])
            info.name, info.dtype = text(one.name), text(one.dtype)
        array, _kept = attribute_array(metadata or {})
        given = array if len(array) else None
        flags = _abi.LAYOUT_FILE if file else 0
        return cls._made(lib.tensors_layout, infos, len(many), given, len(array), flags)

    @property
    def header(self) -> bytes:
        """Of a table with one file: the bytes before the first tensor."""
        return self.headers[0]

    @property
    def size(self) -> int:
        return self.sizes[0]

    @property
    def metadata(self) -> Dict[str, str]:
        return self.all_metadata[0] if self.all_metadata else {}

    def attribute(self) -> str:
        """The value of the attribute that marks an object with this table."""
        length = int.from_bytes(self.header[:8], "little")
        return f'{{"format": 1, "tensors": {len(self.tensors)}, "header_bytes": {length}}}'


_INFO = struct.Struct("<IIQQQQQQ")  # gshm_tensor_info, which thousands of tensors have


def _read_infos(infos: Any, count: int) -> Iterator[Tensor]:
    types: Dict[int, str] = {}
    for _, dimensions, name, kind, shape, offset, nbytes, file in _INFO.iter_unpack(bytes(infos)[: count * _INFO.size]):
        if kind not in types:
            types[kind] = ctypes.string_at(kind).decode()
        numbers = struct.unpack(f"<{dimensions}Q", ctypes.string_at(shape, 8 * dimensions)) if dimensions else ()
        yield Tensor(ctypes.string_at(name).decode(), types[kind], numbers, offset, nbytes, file)


def _read_header(handle: int, file: int) -> bytes:
    size = ctypes.c_size_t()
    data = lib.tensors_header(handle, file, ctypes.byref(size))
    return ctypes.string_at(data, size.value)


def _read_metadata(handle: int, file: int) -> Dict[str, str]:
    found = {}
    for index in range(lib.tensors_metadata_count(handle, file)):
        item = ctypes.cast(lib.tensors_metadata(handle, file, index), ctypes.POINTER(_abi.Attribute)).contents
        found[item.name.decode()] = ctypes.string_at(item.value, item.value_bytes).decode()
    return found
