"""Loading safetensors files as torch tensors."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from ..bars import Bar, bar_for
from ..client import Client
from ..loads import Filter, Model, Part, Slices, choose, load_parts
from ..references import default_client
from .states import KEY, unflatten
from .views import daemon_device, torch, views


def load_torch_parts(
    path: Any,
    device: Any,
    *,
    name: Optional[str] = None,
    filter: Optional[Filter] = None,
    slice: Optional[Slices] = None,
    device_map: Optional[Mapping[str, Any]] = None,
    progress: Any = None,
    client: Optional[Client] = None,
    mode: int = 0,
    timeout: Optional[float] = None,
    existing: bool = False,
) -> List[Part]:
    connection = client or default_client()
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    known: Dict[Any, str] = {}

    def translated(one: Any) -> str:
        if one not in known:
            known[one] = daemon_device(connection, one)
        return known[one]

    devices = None if device_map is None else {prefix: translated(one) for prefix, one in device_map.items()}
    chosen = choose(path, filter, slice, devices)
    report = bar_for(progress, os.path.basename(os.path.normpath(os.fspath(path))))
    try:
        return load_parts(
            connection, path, translated(device), name, chosen, mode=mode, timeout=timeout, existing=existing,
            progress=report,
        )  # fmt: skip
    finally:
        if isinstance(report, Bar):
            report.close()


def load(path: Any, device: Any = None, **options: Any) -> Model[Any]:
    """The tensors of a safetensors file, or of a folder with such files: read once for all processes, and then shared. They
    must not be written.

    `device` is torch's (None: the current GPU, or the CPU). The options are those of gshm.load(), with torch's devices in
    `device_map`. On a terminal there is a progress bar, unless `progress` is a function or False."""
    found: Model[Any] = Model()
    found.parts = load_torch_parts(path, device, **options)
    for part in found.parts:
        found.update(views(part.object, part.table.tensors))
    return found


def load_file_state(path: Any, device: Any = None, *, copy: bool = False, **options: Any) -> Any:
    """The state of save() from its file. As load_state(), which needs the object."""
    found: Dict[str, Any] = {}
    text: Optional[str] = None
    for part in load_torch_parts(path, device, **options):
        found.update(views(part.object, part.table.tensors))
        text = part.table.metadata.get(KEY, text)
    if copy:
        found = {key: one.clone() for key, one in found.items()}
    return found if text is None else unflatten(text, found)
