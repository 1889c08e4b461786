"""In the place of safetensors.torch."""
from __future__ import annotations

import importlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..patching import original_attribute
from ..tables import Table
from ..torch.views import storage_of, view
from .errors import header_errors, type_errors
from .opening import safe_open
from .serializing import TensorSpec, serialize, serialize_file

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model", "storage_ptr", "storage_size"]

torch: Any = importlib.import_module("torch")


def __getattr__(name: str) -> Any:
    return original_attribute("safetensors.torch", name)


def storage_ptr(tensor: Any) -> int:
    """The address of a tensor's storage; 0 on the device meta."""
    if tensor.device.type == "meta":
        return 0
    return int(storage_of(tensor).data_ptr())


def storage_size(tensor: Any) -> int:
    if tensor.device.type == "meta":
        return int(tensor.nelement() * tensor.element_size())
    return int(storage_of(tensor).nbytes())


def load_file(filename: Any, device: Any = "cpu", *, backend: str = "mmap") -> Dict[str, Any]:
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


def load(data: bytes) -> Dict[str, Any]:
    with header_errors("Error while deserializing"):
        table = Table.of_memory(data)
    found = {}
    for one in table.tensors:  # a copy for each: tensors of a file are not aligned
        part = bytearray(memoryview(data)[one.offset : one.offset + one.nbytes])
        everything = torch.frombuffer(part, dtype=torch.uint8) if part else None
        with type_errors():
            found[one.name] = view(everything, one._replace(offset=0), 0)
    return found


def save(tensors: Dict[str, Any], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    kept: List[Any] = []
    return serialize(_flatten(tensors, kept), metadata)


def save_file(tensors: Dict[str, Any], filename: Any, metadata: Optional[Mapping[str, str]] = None) -> None:
    kept: List[Any] = []
    serialize_file(_flatten(tensors, kept), filename, metadata)


def save_model(
    model: Any, filename: Any, metadata: Optional[Dict[str, str]] = None, force_contiguous: bool = True
) -> None:
    """Tensors with several names are stored once; the metadata has the other names."""
    state = dict(model.state_dict())
    described = dict(metadata or {})
    for kept, dropped in _duplicates(state).items():
        for name in dropped:
            described.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: one.contiguous() for name, one in state.items()}
    try:
        save_file(state, filename, described or None)
    except ValueError as error:
        raise ValueError(
            f"{error} Or use save_model(..., force_contiguous=True), read the docs for potential caveats."
        ) from None


def load_model(
    model: Any, filename: Any, strict: bool = True, device: Any = "cpu", *, backend: str = "mmap"
) -> Tuple[Set[str], List[str]]:
    state = load_file(filename, device=device, backend=backend)
    duplicates = _duplicates(model.state_dict(), preferred=list(state))
    missing_names, unexpected_names = model.load_state_dict(state, strict=False)
    missing, unexpected = set(missing_names), list(unexpected_names)
    for dropped in duplicates.values():
        for name in dropped:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        error = f"Error(s) in loading state_dict for {model.__class__.__name__}:"
        for title, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                listed = ", ".join(f'"{one}"' for one in sorted(names))
                error += f"\n    {title} key(s) in state_dict: {listed}"
        raise RuntimeError(error)
    return missing, unexpected


# ---- tensors in one memory ----
def _range(tensor: Any) -> Tuple[int, int]:
    from ..torch.reductions import span

    return tensor.data_ptr(), tensor.data_ptr() + (span(tensor) if tensor.numel() else 0)


def _shared(tensors: Mapping[str, Any]) -> List[Set[str]]:
    """Names of tensors that share memory, in groups."""
    places = sorted(
        (str(one.device), *_range(one), name)
        for name, one in tensors.items()
        if one.device.type != "meta" and one.numel()
    )
    groups: List[Set[str]] = []
    end, device = 0, ""
    for where, begin, stop, name in places:
        if groups and where == device and begin < end:
            groups[-1].add(name)
        else:
            groups.append({name})
            end = 0
        end, device = max(end, stop), where
    return [one for one in groups if len(one) > 1]


def _duplicates(state: Mapping[str, Any], preferred: Sequence[str] = ()) -> Dict[str, List[str]]:
    """For each group of tensors in one memory the name to keep, which covers all of it, and the others."""
    found = {}
    for group in _shared(state):
        begin = min(_range(state[name])[0] for name in group)
        end = max(_range(state[name])[1] for name in group)
        complete = sorted(name for name in group if _range(state[name]) == (begin, end) and state[name].is_contiguous())
        if not complete:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no suitable name to keep for saving "
                f"amongst: {group}. None is covering the entire storage."
            )
        kept = next((name for name in complete if name in preferred), complete[0])
        found[kept] = sorted(group - {kept})
    return found


def _flatten(tensors: Dict[str, Any], kept: List[Any]) -> Dict[str, TensorSpec]:
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    sparse = []
    for name, one in tensors.items():
        if not isinstance(one, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(one)}")
        if one.layout != torch.strided:
            sparse.append(name)
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    tensors = {name: one.detach().resolve_conj().resolve_neg() for name, one in tensors.items()}
    failing = _shared(tensors)
    if failing:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading "
            f"them again: {failing}. A potential way to correctly save your model is to use `save_model`."
        )
    found = {}
    for name, one in tensors.items():
        if not one.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you"
                " are trying to save tensors which are reference of each other in which case it's recommended to save"
                " only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to"
                " pack it before saving."
            )
        here = one.to("cpu")
        kept.append(here)
        found[name] = TensorSpec(
            dtype=str(one.dtype).split(".")[-1],
            shape=one.shape,
            data_ptr=here.data_ptr(),
            data_len=here.numel() * here.element_size(),
        )
    return found
