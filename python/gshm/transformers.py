"""Models of the package transformers, with their weights in shared memory."""
from __future__ import annotations

import contextlib
import importlib
import os
import threading
from typing import Any, Iterator, Optional

from .client import Client
from .torch.loading import load
from .torch.views import torch, torch_device

_lock = threading.RLock()


@contextlib.contextmanager
def without_warmup() -> Iterator[None]:
    """transformers reserves the size of the whole model on the GPU, where it is already."""
    utils: Any = importlib.import_module("transformers.modeling_utils")
    with _lock:
        warmup = getattr(utils, "caching_allocator_warmup", None)
        if warmup is None:
            yield
            return
        utils.caching_allocator_warmup = lambda *_, **__: None
        try:
            yield
        finally:
            utils.caching_allocator_warmup = warmup


def folder_of(path: Any, revision: Optional[str]) -> str:
    """A folder, or the snapshot of a model of the hub."""
    if os.path.isdir(path):
        return str(os.fspath(path))
    hub: Any = importlib.import_module("huggingface_hub")
    return str(hub.snapshot_download(os.fspath(path), revision=revision))


def _has_short_name(version: str) -> bool:
    """`dtype` instead of `torch_dtype`."""
    numbers = [int("".join(c for c in one if c.isdigit()) or 0) for one in version.split(".")[:2]]
    return numbers >= [4, 56]


def from_pretrained(
    cls: Any,
    path: Any,
    *arguments: Any,
    device: Any = None,
    device_map: Any = None,
    name: Optional[str] = None,
    client: Optional[Client] = None,
    progress: Any = None,
    **options: Any,
) -> Any:
    """cls.from_pretrained(path, ...) whose weights are loaded once for all processes, and shared: the model has no memory of its
    own for them, and its parameters must not be written. `device` is one for all; `device_map` a dict of prefixes. The types
    are those of the files, unless `dtype` is given: weights of another type are private copies."""
    transformers: Any = importlib.import_module("transformers")
    folder = folder_of(path, options.get("revision"))
    if device_map is None:
        one = torch_device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
        device_map = {"": str(one)}
    elif not isinstance(device_map, dict):
        raise ValueError(f"device_map is a dict of prefixes and devices here, not {device_map!r}")
    tensors = load(folder, next(iter(device_map.values())), device_map=device_map if set(device_map) != {""} else None,
                   name=name, client=client, progress=progress)  # fmt: skip
    if "dtype" not in options and "torch_dtype" not in options:
        options["dtype" if _has_short_name(transformers.__version__) else "torch_dtype"] = "auto"
    if set(map(str, device_map.values())) != {"cpu"}:  # None leaves the weights on the CPU
        options["device_map"] = device_map
    if options.get("config") is None:
        trusted = {key: options[key] for key in ("trust_remote_code",) if key in options}
        options["config"] = transformers.AutoConfig.from_pretrained(folder, **trusted)
    with without_warmup():  # transformers takes either a path or a state
        model = cls.from_pretrained(None, *arguments, state_dict=tensors, **options)
    if getattr(model, "generation_config", None) is not None:  # otherwise read from the path
        if os.path.exists(os.path.join(folder, "generation_config.json")):
            model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model
