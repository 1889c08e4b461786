"""safe_open, and slices."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from ..client import Client
from ..loads import Part, load_parts
from ..references import default_client
from ..tables import Table, Tensor
from .errors import SafetensorError, header_errors
from .frameworks import check_backend, device_of, framework_of

_shared = False


def shared(value: bool) -> None:
    """Whether tensors on a GPU are the shared memory, which must not be written, or private copies."""
    global _shared
    _shared = bool(value)


class safe_open:
    """Opens a safetensors file. Its tensors are loaded, once for all processes, when the first of them is asked for."""

    def __init__(self, filename: Any, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> None:
        self._open = False
        path = os.fspath(filename)
        kind = framework_of(framework)
        check_backend(backend)
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            raise FileNotFoundError(f"No such file or directory: {os.fsdecode(path)}") from None
        if os.path.isdir(path):
            raise SafetensorError(f"Error while deserializing header: {os.fsdecode(path)} is a directory")
        where = device_of(device)
        if where != "cpu" and kind != "pytorch":
            raise SafetensorError(f"Device {where} is not supported for framework {kind}")
        with header_errors("Error while deserializing header"):
            self._table = Table.of_path(path)
        self._path, self._kind, self._where = path, kind, where
        self._tensors: Dict[str, Tensor] = {one.name: one for one in self._table.tensors}
        self._source: Any = None
        self._open = True

    def _need(self) -> None:
        if not self._open:
            raise SafetensorError("File is closed")

    def _info(self, name: str) -> Tensor:
        self._need()
        if not isinstance(name, str):
            raise TypeError(f"argument 'name': {type(name).__name__!r} object cannot be converted to 'str'")
        found = self._tensors.get(name)
        if found is None:
            raise SafetensorError(f"File does not contain tensor {name}")
        return found

    def _get(self, name: str) -> Any:
        if self._source is None:
            self._source = make_source(self._path, self._kind, self._where)
        return self._source.get(name)

    def keys(self) -> List[str]:
        self._need()
        return sorted(self._tensors)

    def offset_keys(self) -> List[str]:
        self._need()
        return [one.name for one in self._table.tensors]

    def metadata(self) -> Optional[Dict[str, str]]:
        self._need()
        return dict(self._table.metadata) or None

    def get_tensor(self, name: str) -> Any:
        self._info(name)
        return self._get(name)

    def get_tensors(self) -> Dict[str, Any]:
        self._need()
        return {name: self._get(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> SafeSlice:
        return SafeSlice(self, self._info(name))

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._source = None


class SafeSlice:
    """A tensor whose parts are taken by indexing. It outlives the file that it is from."""

    def __init__(self, file: safe_open, tensor: Tensor) -> None:
        self._tensor = tensor
        self._path, self._kind, self._where = file._path, file._kind, file._where
        self._source = file._source
        self._file: Optional[safe_open] = file

    def get_shape(self) -> List[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        if self._source is None and self._file is not None and self._file._open:
            self._source = self._file._source = self._file._source or make_source(self._path, self._kind, self._where)
        elif self._source is None:
            self._source = make_source(self._path, self._kind, self._where)
        if self._kind == "pytorch":
            return self._source.part(self._tensor.name, index)
        whole = self._source.get(self._tensor.name)
        return whole[checked(index, self._tensor.shape)].copy()


def checked(index: Any, shape: Tuple[int, ...]) -> Any:
    """An index as the original takes it for NumPy: numbers, slices without a step, an empty list, and the ellipsis."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        return slice(0, 0)
    many = index if isinstance(index, tuple) else (index,)
    given = sum(one is not Ellipsis for one in many)
    if given > len(shape):
        raise SafetensorError(
            f"Error during slicing {list(many)} with shape {list(shape)}: more slicing indexes than dimensions in tensor"
        )
    for position, one in enumerate(many):
        if isinstance(one, slice):
            if one.step not in (None, 1):
                raise SafetensorError("step is not supported in slices")
        elif isinstance(one, int) and Ellipsis not in many:
            size = shape[position]
            if not -size <= one < size:
                raise SafetensorError(
                    f"Error during slicing {list(many)} with shape {list(shape)}: "
                    f"index {one} out of bounds for tensor dimension #{position} of size {size}"
                )
        elif one is not Ellipsis and not isinstance(one, int):
            raise TypeError(f"an index is a number or a slice, not a {type(one).__name__}")
    return index


def make_source(path: Any, kind: str, where: str, client: Optional[Client] = None) -> Any:
    """The tensors of the file in the framework, by get(name)."""
    connection = client or default_client()
    with header_errors("Error while deserializing header"):
        if kind == "pytorch":
            from .sources import TorchSource, torch_device_name

            parts = load_parts(connection, path, torch_device_name(connection, where), None, None)
            return TorchSource(one_part(parts), _shared and where != "cpu")
        from .sources import NumpySource

        return NumpySource(one_part(load_parts(connection, path, "host", None, None)))


def one_part(parts: List[Part]) -> Optional[Part]:
    """None: the file has no tensors."""
    return parts[0] if parts else None
