"""Torch tensors over an object: one import by DLPack for the whole object, and a view of its storage for each tensor."""
from __future__ import annotations

import importlib
from typing import Any, Dict, Iterable, Tuple

from ..arrays import Array
from ..client import Client
from ..collecting import paused
from ..dtypes import UINT8
from ..tables import NAMES, TYPES, Tensor

torch: Any = importlib.import_module("torch")


def torch_type(name: str) -> Any:
    """The dtype with the name of a header."""
    kind = TYPES[name][1]
    found = getattr(torch, kind, None) if kind else None
    if found is None:
        raise TypeError(f"torch {torch.__version__} has no type for {name}")
    return found


def header_type(tensor: Any) -> str:
    """The name of a tensor's type in headers."""
    kind = str(tensor.dtype).replace("torch.", "")
    if kind not in NAMES:
        raise TypeError(f"tensors of {kind} have no place in a safetensors header")
    return NAMES[kind]


def describe(name: str, tensor: Any) -> Tensor:
    """A table's entry for a tensor. Two elements of float4 are one of torch's."""
    try:
        kind = header_type(tensor)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    shape = tuple(tensor.shape)
    return Tensor(name, kind, (*shape[:-1], shape[-1] * 2) if kind == "F4" and shape else shape)


def storage_of(tensor: Any) -> Any:
    get = getattr(tensor, "untyped_storage", None)
    return tensor.storage()._storage if get is None else get()  # torch before 2.0 has no untyped_storage()


def place_of(tensor: Any) -> Tuple[Any, ...]:
    """Equal for tensors that are the same numbers in the same memory."""
    return (
        tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()
    )  # fmt: skip


def strides_of(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, step = [], 1
    for one in reversed(shape):
        strides.append(step)
        step *= max(one, 1)
    return tuple(reversed(strides))


def whole(array: Array, offset: int = 0) -> Any:
    """The bytes of the array, from the offset on, as a tensor of uint8. Its storage keeps the lease."""
    return torch.from_dlpack(array.view(UINT8, (array.nbytes - offset,), offset))


def views_in(everything: Any, tensors: Iterable[Tensor], begin: int = 0) -> Dict[str, Any]:
    """Tensors in the bytes of an object, which begins there. They have the storage of the bytes, but are no views in the sense
    of autograd: a change of one is no change of the others."""
    device = None if everything is None else everything.device
    storage = None if everything is None else storage_of(everything)
    first = begin + (0 if everything is None else everything.storage_offset())
    types: Dict[str, Any] = {}
    strides: Dict[Tuple[int, ...], Tuple[int, ...]] = {}
    found = {}
    empty = torch.empty
    with paused():
        for one in tensors:
            kind = types.get(one.dtype)
            if kind is None:
                try:
                    kind = types[one.dtype] = (torch_type(one.dtype), TYPES[one.dtype][0] // 8 or 1)
                except TypeError as error:
                    raise TypeError(f"{one.name}: {error}") from None
            shape = one.packed_shape
            if one.nbytes == 0:
                found[one.name] = empty(shape, dtype=kind[0], device=device)
                continue
            steps = strides.get(shape)
            if steps is None:
                steps = strides[shape] = strides_of(shape)
            made = empty(0, dtype=kind[0], device=device)
            found[one.name] = made.set_(storage, (first + one.offset) // kind[1], shape, steps)
    return found


def view(everything: Any, tensor: Tensor, begin: int = 0) -> Any:
    return views_in(everything, [tensor], begin)[tensor.name]


def views(array: Array, tensors: Iterable[Tensor]) -> Dict[str, Any]:
    """A tensor for each entry of the object's table. All have one storage, which keeps one lease."""
    return views_in(whole(array), tensors)


def torch_device(device: Any) -> Any:
    """A torch device; "host" is "cpu"."""
    if device == "host":
        device = "cpu"
    made = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
    if made.type == "cuda" and made.index is None:
        made = torch.device("cuda", torch.cuda.current_device())
    if made.type not in ("cpu", "cuda"):
        raise ValueError(f"gshm has no memory on {made}: devices are cpu and cuda")
    return made


def daemon_device(client: Client, device: Any) -> str:
    """The daemon's name of a torch device. GPUs are matched by UUID: the daemon may number them differently."""
    from .. import local_devices

    made = torch_device(device)
    if made.type == "cpu":
        return "host"
    here = {one.name: one.uuid for one in local_devices()}
    uuid = here.get(str(made))
    for one in client.devices():
        if uuid and one.uuid == uuid:
            return one.name
    raise ValueError(f"gshmd does not have the GPU that is {made} here")
