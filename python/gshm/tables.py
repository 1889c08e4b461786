"""Tables of tensors: the header of a safetensors file, and of an object in the same form, whose tensors are aligned."""
from __future__ import annotations

import ctypes
import json
import struct
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ._abi import lib
from .arrays import Lease, product
from .errors import make_error

ATTRIBUTE = "gshm.tensors"  # marks objects in this form
ALIGNMENT = 256

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
        if self.dtype == "F4" and self.shape:
            return (*self.shape[:-1], self.shape[-1] // 2)
        return (self.nbytes,) if TYPES[self.dtype][1] is None else self.shape


class Table:
    """Tensors with their places, in the order of the bytes."""

    def __init__(self, tensors: List[Tensor], metadata: Dict[str, str], header: bytes, size: int) -> None:
        self.tensors, self.metadata, self.header, self.size = tensors, metadata, header, size

    @classmethod
    def layout(cls, tensors: Iterable[Tensor], metadata: Mapping[str, str], *, file: bool = False) -> Table:
        """Places for new tensors, of which name, type and shape are used: in an object, or in a file."""
        order = list(TYPES)
        many = list(tensors)
        if file:
            many.sort(key=lambda one: (-order.index(one.dtype), one.name))
        step = 1 if file else ALIGNMENT
        placed, at = [], 0
        described: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        for one in many:
            at += -at % step
            nbytes = product(one.shape) * TYPES[one.dtype][0] // 8
            described[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + nbytes]}
            placed.append(one._replace(offset=at, nbytes=nbytes))
            at += nbytes
        text = json.dumps(described, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % (8 if file else ALIGNMENT))
        header = struct.pack("<Q", len(text)) + text
        placed = [one._replace(offset=one.offset + len(header)) for one in placed]
        return cls(placed, dict(metadata), header, at + len(header))

    @classmethod
    def of_object(cls, lease: Lease) -> Table:
        def read(offset: int, size: int) -> bytes:
            buffer = ctypes.create_string_buffer(size)
            lease.call(lib.copy_out, offset, buffer, size)
            return buffer.raw

        if lease.size_bytes < 8:
            raise make_error(74, "the object has no table of tensors")
        (length,) = struct.unpack("<Q", read(0, 8))
        if length > lease.size_bytes - 8:
            raise make_error(74, "the object has no table of tensors")
        text = read(8, length)
        described = json.loads(text)
        metadata = described.pop("__metadata__", {})
        tensors = []
        for name, one in described.items():
            begin, end = one["data_offsets"]
            tensors.append(Tensor(name, one["dtype"], tuple(one["shape"]), begin + 8 + length, end - begin))
        return cls(tensors, metadata, struct.pack("<Q", length) + text, lease.size_bytes)

    def attribute(self) -> str:
        """The value of the attribute that marks an object with this table."""
        length = struct.unpack("<Q", self.header[:8])[0]
        return json.dumps({"format": 1, "tensors": len(self.tensors), "header_bytes": length})
