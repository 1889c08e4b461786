"""Attributes, and the shape and type that they tell."""
from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, MutableMapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._abi import lib, name_of, text
from .arrays import Shape, product, to_shape
from .dtypes import UINT8, DType, dtype as to_dtype
from .errors import Error

if TYPE_CHECKING:
    from .names import Names


def _value(value: Union[str, bytes, int, float]) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return str(value).encode()


def attribute_array(values: Mapping[str, Any]) -> Tuple[Any, List[bytes]]:
    """A C array, and the bytes that it points to."""
    kept: List[bytes] = []
    array = (_abi.Attribute * len(values))()
    for slot, (name, value) in zip(array, values.items()):
        encoded = _value(value)
        kept.append(encoded)
        slot.name = text(name)
        slot.value = ctypes.cast(ctypes.c_char_p(encoded), ctypes.c_void_p)
        slot.value_bytes = len(encoded)
    return array, kept


def text_array(names: Sequence[Any]) -> Any:
    return (ctypes.c_char_p * len(names))(*[text(name) for name in names])


class Attributes(MutableMapping[str, bytes]):
    """The attributes of an object or directory. Values are bytes; text and numbers are stored as text."""

    def __init__(self, client: Names, name: str) -> None:
        self._client = client
        self._name = name

    def _read(self, names: Optional[Sequence[str]]) -> Dict[str, bytes]:
        listed = ctypes.c_void_p()
        array = None if names is None else text_array(names)
        count = 0 if names is None else len(names)
        self._client._call(lib.get_attributes, text(self._name), array, count, ctypes.byref(listed), name=self._name)
        try:
            found = {}
            for index in range(lib.attribute_list_count(listed)):
                item = ctypes.cast(lib.attribute_list_item(listed, index), ctypes.POINTER(_abi.Attribute)).contents
                found[name_of(item.name)] = ctypes.string_at(item.value, item.value_bytes)
            return found
        finally:
            lib.attribute_list_free(listed)

    def __getitem__(self, key: str) -> bytes:
        return self._read([key])[key]

    def __setitem__(self, key: str, value: Any) -> None:
        encoded = _value(value)
        self._client._call(lib.set_attribute, text(self._name), text(key), encoded, len(encoded), name=self._name)

    def __delitem__(self, key: str) -> None:
        try:
            self._client._call(lib.remove_attribute, text(self._name), text(key), name=self._name)
        except Error as error:
            if error.errno == errno.ENODATA:
                raise KeyError(key) from None
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._read(None))

    def __len__(self) -> int:
        return len(self._read(None))

    def read(self, *names: str) -> Dict[str, bytes]:
        """All attributes, or those of the names that exist, in one call."""
        return self._read(names if names else None)

    def write(self, values: Mapping[str, Any]) -> None:
        """Several attributes in one call."""
        array, _kept = attribute_array(values)
        status = (ctypes.c_int * len(values))()
        self._client._call(lib.set_attributes, text(self._name), array, len(values), status, name=self._name)

    def __repr__(self) -> str:
        return f"<Attributes of {self._name!r}>"


def read_tensor_attributes(found: Mapping[str, bytes], size_bytes: int) -> Tuple[Shape, DType]:
    """The shape and type that the attributes tell; bytes if they tell none, or one that does not fit."""
    try:
        kind = to_dtype(found["dtype"].decode())
        given = found["shape"].decode()
        shape = to_shape([int(one) for one in given.split(",")] if given else [])
        if product(shape) * kind.itemsize <= size_bytes:
            return shape, kind
    except (KeyError, TypeError, ValueError):
        pass
    return (size_bytes,), UINT8
