"""Arrays over memory of gshm: DLPack, the array interfaces of NumPy and CUDA, the buffer protocol.

A lease belongs to every array, view, tensor and buffer made from it. It ends with the last of them, in any order. The
deleters of tensors are in libgshm, so that tensors may outlive the interpreter.
"""
from __future__ import annotations

import ctypes
import importlib
import operator
import os
import sys
import threading
from errno import ECHILD
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

from . import _abi
from ._abi import lib, text
from .dtypes import FLOAT8_SINCE, UINT8, DType, dtype as to_dtype
from .errors import check, make_error

CPU, CUDA = 1, 2  # device types of DLPack
LEGACY_STREAM = 1

Shape = Tuple[int, ...]
_nothing = ctypes.c_uint64()  # the memory of empty arrays
# origin(write) tells how another process opens the memory: a function, and its arguments before offset, shape and type.
# It has no reference to the array.
Origin = Callable[[bool], Tuple[Callable[..., Any], Tuple[Any, ...]]]


class Lease:
    """An open handle (gshm_object), closed with the last reference. Calls on it take its lock."""

    __slots__ = (
        "handle", "lock", "pid", "address", "size_bytes", "exposed", "ordered", "sealed", "owner", "_device", "_close"
    )  # fmt: skip

    def __init__(self, handle: int, *, ordered: bool = False, owner: Any = None) -> None:
        self.handle = handle
        self._close = lib.close
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.address: int = lib.data(handle) or 0
        self.size_bytes: int = lib.size(handle)
        self.exposed = False  # the address has been handed out without a reference to this lease
        self.ordered = ordered  # another process may order its GPU work by the object's fence
        self.sealed = False  # false: not known
        self.owner = owner  # of memory that was wrapped
        self._device: Optional[Tuple[int, int]] = None

    def __del__(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            self._close(handle)

    def check_process(self) -> None:
        """In a forked child the lock may be held by a thread that does not exist there."""
        if self.pid != os.getpid():
            raise make_error(ECHILD, "this handle was made before fork(): call gshm.connect() again in the child")

    def call(self, function: Any, *arguments: Any) -> int:
        """function(handle, ...), by one thread at a time."""
        self.check_process()
        with self.lock:
            return check(function(self.handle, *arguments))

    def is_sealed(self) -> bool:
        if not self.sealed:
            info = _abi.StatInfo()
            self.call(lib.stat_object, ctypes.byref(info))
            self.sealed = info.state == _abi.STATE_SEALED
        return self.sealed

    def dl_device(self) -> Tuple[int, int]:
        if self._device is None:
            kind, number = ctypes.c_int32(), ctypes.c_int32()
            self.call(lib.dlpack_device, ctypes.byref(kind), ctypes.byref(number))
            self._device = (kind.value, number.value)
        return self._device


def opened(function: Any, *arguments: Any, name: Optional[str] = None, ordered: bool = False, owner: Any = None) -> Lease:
    """The lease of a call whose last parameter is the returned handle."""
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)), name)
    return Lease(handle.value or 0, ordered=ordered, owner=owner)


# ---- capsules ----
_capsule_lock = threading.Lock()
_new_capsule: Any = None
_destructor = 0
_names = (b"dltensor", b"dltensor_versioned")


def _prepare_capsules() -> None:
    global _new_capsule, _destructor
    with _capsule_lock:
        if _new_capsule is not None:
            return
        api = ctypes.pythonapi
        for name in _names:  # a capsule may be the last thing in the process that needs its name
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(name))
        _destructor = lib.dlpack_capsule(
            ctypes.cast(api.PyCapsule_IsValid, ctypes.c_void_p), ctypes.cast(api.PyCapsule_GetPointer, ctypes.c_void_p)
        )
        # A prototype of our own: attributes of pythonapi.PyCapsule_New are shared with other packages.
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        _new_capsule = prototype(("PyCapsule_New", api))


def product(shape: Sequence[int]) -> int:
    result = 1
    for one in shape:
        result *= one
    return result


def to_shape(shape: Union[int, Sequence[int]]) -> Shape:
    try:
        numbers: Shape = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        numbers = tuple(operator.index(one) for one in shape)  # type: ignore[union-attr]
    if any(one < 0 for one in numbers):
        raise ValueError(f"a negative number in the shape {numbers}")
    return numbers


class Array:
    """A row-major array in memory of gshm. numpy, torch, cupy and jax take it without a copy."""

    def __init__(
        self,
        lease: Lease,
        shape: Shape,
        dtype: DType,
        offset: int = 0,
        writable: bool = False,
        origin: Optional[Origin] = None,
    ) -> None:
        needed = product(shape) * dtype.itemsize
        if offset < 0 or offset + needed > lease.size_bytes:
            raise ValueError(f"{shape} of {dtype} at {offset} needs {needed} bytes; there are {lease.size_bytes}")
        self._lease: Optional[Lease] = lease
        self._shape = shape
        self._dtype = dtype
        self._offset = offset
        self._writable = writable
        self._origin = origin  # None: no other process can open the memory
        self._specs: Dict[DType, Tuple[_abi.TensorSpec, Any]] = {}

    # ---- what it is ----
    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return product(self._shape)

    @property
    def itemsize(self) -> int:
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self._dtype.itemsize

    @property
    def offset(self) -> int:
        """Of the first element in the object, in bytes."""
        return self._offset

    @property
    def writable(self) -> bool:
        return self._writable

    @property
    def ptr(self) -> int:
        """The address of the first element, valid as long as the array: a device pointer on a GPU. 0 without a mapping."""
        address = self._need().address
        return address + self._offset if address else 0

    def _need(self) -> Lease:
        if self._lease is None:
            raise ValueError("the array is closed")
        return self._lease

    def close(self) -> None:
        """Gives up the lease. Views, tensors and buffers keep it. If its __array_interface__ was read, of which no one can
        tell how long it is used, the lease ends with the array itself."""
        if self._lease is not None and not self._lease.exposed:
            self._lease = None

    def __repr__(self) -> str:
        if self._lease is None:
            return f"<{type(self).__name__} closed>"
        return f"<{type(self).__name__} shape={self._shape} dtype={self._dtype}>"

    def _is_read_only(self) -> bool:
        return not self._writable or (self._lease is not None and self._lease.sealed)

    # ---- views and copies ----
    def view(self, dtype: Any = None, shape: Union[int, Sequence[int], None] = None, offset: int = 0) -> Array:
        """Another array over the same memory, `offset` bytes further. Without a shape: to the end of this one, in one
        dimension, or this one's shape if the elements have the same size."""
        kind = self._dtype if dtype is None else to_dtype(dtype)
        if not 0 <= offset <= self.nbytes:
            raise ValueError(f"the offset {offset} is outside of the array's {self.nbytes} bytes")
        if shape is not None:
            numbers = to_shape(shape)
        elif offset == 0 and kind.itemsize == self.itemsize:
            numbers = self._shape
        else:
            numbers = ((self.nbytes - offset) // kind.itemsize,)
        if offset + product(numbers) * kind.itemsize > self.nbytes:
            raise ValueError(f"{numbers} of {kind} at {offset} is outside of the array's {self.nbytes} bytes")
        return Array(self._need(), numbers, kind, self._offset + offset, not self._is_read_only(), self._origin)

    def copy(self) -> Array:
        """A private, writable copy on the same device."""
        lease = self._need()
        if self.nbytes == 0:
            return Array(lease, self._shape, self._dtype, 0, True)
        self._wait_for_writer(None)
        made = ctypes.c_void_p()
        lease.call(lib.clone, self._offset, self.nbytes, ctypes.byref(made))
        return Array(Lease(made.value or 0), self._shape, self._dtype, 0, True)

    def _host_copy(self) -> Array:
        lease = self._need()
        if self.nbytes == 0:
            return Array(opened(lib.allocate, b"host", 1, 0), self._shape, self._dtype, 0, True)
        made = opened(lib.allocate, b"host", self.nbytes, 0)
        self._wait_for_writer(None)
        lease.call(lib.copy_out, self._offset, made.address, self.nbytes)
        return Array(made, self._shape, self._dtype, 0, True)

    def tobytes(self) -> bytes:
        buffer = ctypes.create_string_buffer(self.nbytes)
        if self.nbytes:
            self._need().call(lib.copy_out, self._offset, buffer, self.nbytes)
        return buffer.raw

    # ---- order of GPU work ----
    def _wait_for_writer(self, stream: Optional[int]) -> bool:
        """Later work on the stream begins after the newest generation of the object's fence. False: nothing to wait for."""
        lease = self._need()
        if not lease.ordered or lease.sealed or lease.address == 0 or lease.dl_device()[0] != CUDA:
            return False
        if lease.is_sealed():
            return False
        from .fences import Fence

        with Fence(lease) as fence:
            if not fence.published:
                return False
            fence.wait(fence.published, stream=stream)
        return True

    # ---- DLPack ----
    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._need().dl_device()

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        source, flags = self, 0
        device = self.__dlpack_device__()
        if device[0] == CPU and stream not in (None, -1):
            raise BufferError("memory of the CPU has no streams")
        if stream == 0:
            raise BufferError("the stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's own")
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != device:
            if int(dl_device[0]) != CPU or copy is False:
                raise BufferError(f"the array is on device {device}, and is not moved to {tuple(dl_device)}")
            source, flags = self._host_copy(), _abi.TENSOR_COPIED
        elif copy:
            source, flags = self.copy(), _abi.TENSOR_COPIED
        elif stream != -1 and device[0] == CUDA:
            self._wait_for_writer(stream)
        if not flags and self._is_read_only():
            flags = _abi.TENSOR_READ_ONLY
        versioned = max_version is not None and max_version[0] >= 1
        kind = source._dtype
        if kind.is_float8 and (max_version is None or tuple(max_version) < FLOAT8_SINCE):
            kind = UINT8  # the consumer knows no code for it, and can view the bytes
        return source._capsule(kind, flags, versioned)

    def _capsule(self, kind: DType, flags: int, versioned: bool) -> Any:
        if _new_capsule is None:
            _prepare_capsules()
        lease = self._need()
        known = self._specs.get(kind)
        if known is None:
            numbers = (ctypes.c_int64 * len(self._shape))(*self._shape)
            spec = _abi.TensorSpec(
                offset=self._offset,
                shape=ctypes.addressof(numbers) if self._shape else None,
                dimensions=len(self._shape),
                type_code=kind.code,
                type_bits=kind.bits,
                type_lanes=1,
            )
            known = self._specs[kind] = (spec, numbers)
        tensor = ctypes.c_void_p()
        spec = known[0]
        lease.check_process()
        with lease.lock:
            spec.flags = flags
            make = lib.dlpack_versioned if versioned else lib.dlpack
            check(make(lease.handle, ctypes.byref(spec), ctypes.byref(tensor)))
        return _new_capsule(tensor, _names[versioned], _destructor)

    # ---- the other interfaces; absent (hasattr is false) where they cannot describe the array ----
    def _describe(self, device: int, name: str) -> Dict[str, Any]:
        lease = self._need()
        if (lease.address == 0 and self.nbytes > 0) or lease.dl_device()[0] != device:
            raise AttributeError(f"the memory has no {name}: it is not mapped, or not on this kind of device")
        if self._dtype.typestr is None:
            raise AttributeError(f"{name} has no name for {self._dtype}; use DLPack, or view('uint8')")
        address = lease.address + self._offset
        if self.nbytes == 0:  # CUDA's interface wants 0, which NumPy takes for a missing address
            address = ctypes.addressof(_nothing) if device == CPU else 0
        return {
            "shape": self._shape,
            "typestr": self._dtype.typestr,
            "data": (address, self._is_read_only()),
            "strides": None,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        described = self._describe(CPU, "__array_interface__")
        self._need().exposed = True
        return described

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        described = self._describe(CUDA, "__cuda_array_interface__")
        self._need().exposed = True
        described["stream"] = LEGACY_STREAM if self._wait_for_writer(LEGACY_STREAM) else None
        return described

    def memoryview(self) -> memoryview:
        """The memory of the host, which the view keeps; as bytes for types that a memoryview has no format for."""
        lease = self._need()
        if self.nbytes == 0:
            return memoryview(b"")
        if lease.address == 0 or lease.dl_device()[0] != CPU:
            raise BufferError("the memory is not on the host: copy it with tobytes(), or use a mirror")
        block: Any = (ctypes.c_char * self.nbytes).from_address(lease.address + self._offset)
        block.lease = lease  # the view keeps the block, and the block the lease
        view = memoryview(block).cast("B")
        if self._dtype.has_format:
            view = view.cast(self._dtype.format, self._shape)
        return view.toreadonly() if self._is_read_only() else view

    if sys.version_info >= (3, 12):

        def __buffer__(self, flags: int) -> memoryview:
            if not self._dtype.has_format or self.size == 0:  # NumPy then asks for the array interface
                raise BufferError(f"a buffer cannot describe {self._shape} of {self._dtype}; memoryview() has its bytes")
            return self.memoryview()

    def numpy(self) -> Any:
        """A NumPy array over the memory of the host. bfloat16 and float8 need the package ml_dtypes."""
        numpy: Any = importlib.import_module("numpy")
        if self._dtype.typestr is not None:
            return numpy.asarray(_Described(self))
        try:
            ml_dtypes: Any = importlib.import_module("ml_dtypes")
        except ImportError:
            raise TypeError(
                f"NumPy has no {self._dtype}: install ml_dtypes, or use view('uint{self._dtype.bits}')"
            ) from None
        return numpy.asarray(_Described(self.view(f"uint{self._dtype.bits}"))).view(getattr(ml_dtypes, self._dtype.name))

    def torch(self) -> Any:
        """A torch tensor over the memory. torch knows no read-only tensors: a write to sealed memory ends the process
        (host) or the CUDA context. copy().torch() can be written."""
        torch: Any = importlib.import_module("torch")
        kind = getattr(torch, self._dtype.name, None)
        if kind is None:
            raise TypeError(f"torch {torch.__version__} has no {self._dtype}; view('uint8').torch() has the bytes")
        if self._dtype.is_float8 or self._dtype.name == "bool":  # only newer ones take these by DLPack
            return torch.from_dlpack(self.view(UINT8, self._shape)).view(kind)
        return torch.from_dlpack(self)

    # ---- references ----
    def __reduce__(self) -> Any:
        if self._origin is None:
            raise TypeError("private memory has no reference that another process could open: use an object of a daemon")
        function, arguments = self._origin(not self._is_read_only())
        return function, (*arguments, self._offset, self._shape, self._dtype.name)


class _Described:
    """The owner of a NumPy array's memory. It keeps the lease alone, so that an array can be closed."""

    def __init__(self, array: Array) -> None:
        lease = array._need()
        if (lease.address == 0 and array.nbytes > 0) or lease.dl_device()[0] != CPU:
            raise BufferError("the memory is not on the host: copy it with tobytes(), or use a mirror")
        self.__array_interface__ = array._describe(CPU, "__array_interface__")
        self.lease = lease


def allocate(
    shape: Union[int, Sequence[int]], dtype: Any = "uint8", device: str = "host", *, compressible: bool = False
) -> Array:
    """Zeroed memory of this process, without a daemon. `device` is "host", or "cuda:N" with this process's ordinals."""
    kind, numbers = to_dtype(dtype), to_shape(shape)
    size = max(product(numbers) * kind.itemsize, 1)
    flags = _abi.COMPRESSIBLE if compressible else 0
    return Array(opened(lib.allocate, text(device), size, flags), numbers, kind, 0, True)


def wrap(memory: Any, size_bytes: Optional[int] = None) -> Array:
    """Memory of the caller as an array of bytes, for copies, rings and exports: an address with its size, or an array of
    another library. The caller keeps it valid; for an array, this one does."""
    owner = None
    if not isinstance(memory, int):
        owner = memory
        interface = getattr(memory, "__cuda_array_interface__", None) or getattr(memory, "__array_interface__", None)
        if interface is not None:
            if interface.get("strides") is not None:
                raise ValueError("only arrays in row-major order can be wrapped")
            size_bytes = product(interface["shape"]) * int(interface["typestr"][2:])
            memory = interface["data"][0]
        elif hasattr(memory, "data_ptr"):  # torch, also for types without a name in the interfaces
            if not memory.is_contiguous():
                raise ValueError("only contiguous tensors can be wrapped")
            size_bytes, memory = memory.numel() * memory.element_size(), memory.data_ptr()
        else:
            raise TypeError(f"{type(memory).__name__} is neither an address nor an array")
    if size_bytes is None:
        raise TypeError("an address needs size_bytes")
    return Array(opened(lib.wrap, memory, size_bytes, owner=owner), (size_bytes,), UINT8, 0, True)
