"""The frameworks and devices of the original, as far as they are here."""
from __future__ import annotations

from typing import Any

from .errors import SafetensorError

_FRAMEWORKS = {
    "pt": "pytorch", "torch": "pytorch", "pytorch": "pytorch", "np": "numpy", "numpy": "numpy", "tf": "tensorflow",
    "tensorflow": "tensorflow", "jax": "flax", "flax": "flax", "mlx": "mlx", "paddle": "paddle",
}  # fmt: skip
_HERE = ("pytorch", "numpy")


def framework_of(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"argument 'framework': {type(name).__name__!r} object cannot be converted to 'str'")
    found = _FRAMEWORKS.get(name)
    if found is None:
        raise SafetensorError(f"framework {name} is invalid")
    if found not in _HERE:
        raise SafetensorError(f"framework {found} is not supported by gshm: there are pytorch and numpy")
    return found


def device_of(device: Any) -> str:
    """"cpu", or "cuda:N"."""
    if device is None:
        return "cpu"
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return f"cuda:{device}"
    name = str(device) if type(device).__name__ == "device" else device  # torch.device
    if not isinstance(name, str):
        raise SafetensorError(f"device {device!r} is invalid")
    if name == "cuda":
        return "cuda:0"
    if name == "cpu" or (name.startswith("cuda:") and name[5:].isdigit()):
        return name
    raise SafetensorError(f"device {name} is invalid")


def check_backend(backend: Any) -> None:
    if backend not in ("mmap", "pread"):
        raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
