"""The state of snapshot folders, as `gshm snapshot` writes them (docs/snapshot.md)."""
from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Tuple


class Snapshot(NamedTuple):
    complete: bool  # the manifest exists; only then can the folder be restored
    created_ns: int
    instance: str  # of the daemon
    objects: int
    size_bytes: int  # of the objects
    stored_bytes: int  # of the data files
    names: Tuple[str, ...]  # of objects, directories and symbolic links
    left_out: Tuple[Dict[str, Any], ...]  # what the snapshot does not have, with the reasons


def snapshot(folder: Any) -> Snapshot:
    """Reads the manifest. `gshm restore --dry-run` checks the data."""
    import json
    import pathlib

    path = pathlib.Path(folder)
    stored = sum(one.stat().st_size for one in path.iterdir() if one.name.startswith("data-"))
    try:
        lines = (path / "manifest.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return Snapshot(False, 0, "", 0, 0, stored, (), ())
    head = json.loads(lines[0])
    if head.get("format") != "gshm-snapshot" or head.get("version") != 1:
        raise ValueError(f"{os.fspath(folder)} has a format that this version does not know: {head}")
    about = json.loads(lines[1])
    names: List[str] = []
    objects = size = 0
    for line in lines[2:]:
        entry = json.loads(line)
        names.extend(entry.get("names") or [entry["name"]])
        if entry["kind"] == "object":
            objects += 1
            size += entry["size_bytes"]
    return Snapshot(
        True,
        about["created_ns"],
        about["instance"],
        objects,
        size,
        stored,
        tuple(names),
        tuple(about.get("left_out", ())),
    )
