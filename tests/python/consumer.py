"""A consumer of DLPack that looks at the structs itself."""
from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


_api = ctypes.pythonapi
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
USED = b"used_dltensor"


def name(capsule) -> bytes:
    return _name(capsule)


def look(capsule):
    """The struct of a capsule, which stays unconsumed."""
    kind = Versioned if name(capsule) == b"dltensor_versioned" else Managed
    seen = ctypes.cast(_pointer(capsule, name(capsule)), ctypes.POINTER(kind)).contents
    seen.capsule = capsule  # which frees the struct
    return seen


class Taken:
    """A consumed tensor. delete() may be called in any thread."""

    def __init__(self, capsule) -> None:
        self.managed = look(capsule)
        self.tensor = self.managed.tensor
        _rename(capsule, USED)

    def delete(self) -> None:
        ctypes.CFUNCTYPE(None, c_void_p)(self.managed.deleter)(ctypes.addressof(self.managed))
