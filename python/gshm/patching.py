"""gshm.safetensors in the place of the package safetensors, for programs that know nothing of gshm."""
from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any, Dict, List, Optional, Tuple

_lock = threading.Lock()
_changed: List[Tuple[Any, str, Any]] = []  # module, name, former value
_modules: Dict[str, Optional[ModuleType]] = {}  # of sys.modules, before

_paths: List[str] = []  # of the original

_PARTS = ("", ".torch", ".numpy")


class _Later:
    """Imports gshm.safetensors.torch in the place of safetensors.torch when that is imported: torch takes seconds."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == "safetensors.torch" else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules["safetensors.torch"] = importlib.import_module("gshm.safetensors.torch")


_later = _Later()


def _is_later(part: str) -> bool:
    return part == ".torch" and "torch" not in sys.modules


def _import(name: str) -> Optional[ModuleType]:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None  # the package, or its framework, is not installed


def _replacements() -> Dict[int, Any]:
    """Functions and classes of the original by identity, and what takes their place."""
    found: Dict[int, Any] = {}
    for part in _PARTS:
        original = sys.modules.get("safetensors" + part)
        ours = None if original is None else _import("gshm.safetensors" + part)
        if ours is None:
            continue
        found[id(original)] = ours
        for name in getattr(ours, "__all__", ()):
            there = getattr(original, name, None)
            if there is not None:
                found[id(there)] = getattr(ours, name)
    return found


def original_attribute(module: str, name: str) -> Any:
    """A name that gshm.safetensors does not have is the original's, while that is replaced."""
    original = None if name.startswith("__") else _modules.get(module)
    if original is None:
        raise AttributeError(f"module 'gshm.{module}' has no attribute {name!r}")
    return getattr(original, name)


def patch(*, shared: bool = False) -> None:
    """From now on transformers, diffusers, vLLM and others that use safetensors load files through gshm; also those that are
    imported already. With `shared` tensors on a GPU are the shared memory, for programs that copy or only read them."""
    with _lock:
        ours = importlib.import_module("gshm.safetensors")
        ours.shared(shared)
        if _modules:
            return
        _import("safetensors")
        for part in ("torch", "numpy"):
            if part in sys.modules:
                _import(f"safetensors.{part}")
        replacements = _replacements()
        for name, module in list(sys.modules.items()):
            if module is None or name.split(".")[0] in ("safetensors", "gshm"):
                continue
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in replacements:
                    _changed.append((module, key, value))
                    setattr(module, key, replacements[id(value)])
        # Other parts of the original (safetensors.flax, ...) are found as before.
        original = sys.modules.get("safetensors")
        _paths.extend(getattr(original, "__path__", []))
        ours.__path__.extend(_paths)
        for part in _PARTS:
            if _is_later(part):
                _modules["safetensors.torch"] = None
                sys.meta_path.insert(0, _later)
                continue
            made = _import("gshm.safetensors" + part)
            if made is not None:
                _modules["safetensors" + part] = sys.modules.get("safetensors" + part)
                sys.modules["safetensors" + part] = made


def unpatch() -> None:
    """Everything as before. Modules that were imported meanwhile keep what they have."""
    with _lock:
        for name, module in _modules.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        _modules.clear()
        if _later in sys.meta_path:
            sys.meta_path.remove(_later)
        ours = importlib.import_module("gshm.safetensors")
        while _paths:
            ours.__path__.remove(_paths.pop())
        while _changed:
            module, key, value = _changed.pop()
            setattr(module, key, value)
        ours.shared(False)
