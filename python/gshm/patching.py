"""gshm.safetensors in the place of the package safetensors, for programs that know nothing of gshm."""
from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any, Dict, List, Optional, Tuple

_lock = threading.Lock()
_changed: List[Tuple[Any, str, Any]] = []  # module, name, former value
_modules: Dict[str, Optional[ModuleType]] = {}  # of sys.modules, before

_paths: List[str] = []  # of the original

_PARTS = ("", ".torch", ".numpy")


def _import(name: str) -> Optional[ModuleType]:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None  # the package, or its framework, is not installed


def _replacements() -> Dict[int, Any]:
    """Functions and classes of the original by identity, and what takes their place."""
    found: Dict[int, Any] = {}
    for part in _PARTS:
        original, ours = sys.modules.get("safetensors" + part), _import("gshm.safetensors" + part)
        if original is None or ours is None:
            continue
        found[id(original)] = ours
        for name in getattr(ours, "__all__", ()):
            there = getattr(original, name, None)
            if there is not None:
                found[id(there)] = getattr(ours, name)
    return found


def original_attribute(module: str, name: str) -> Any:
    """What gshm.safetensors does not have is the original's, while that is replaced."""
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
        ours = importlib.import_module("gshm.safetensors")
        while _paths:
            ours.__path__.remove(_paths.pop())
        while _changed:
            module, key, value = _changed.pop()
            setattr(module, key, value)
        ours.shared(False)
