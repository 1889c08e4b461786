"""New objects of tensors."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from ..client import Client
from ..objects import Object
from ..tables import ATTRIBUTE, Table
from .views import daemon_device, describe, torch, views_in, whole


def check_tensor(name: str, tensor: Any) -> None:
    if tensor.device.type == "meta":
        raise ValueError(f"{name} is on the device meta: it has no bytes")
    check_dense(name, tensor)


def check_dense(name: str, tensor: Any) -> None:
    """A sparse tensor has no storage of its own, but several tensors."""
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} is sparse; make it dense first, with to_dense()")


def main_device(tensors: Mapping[str, Any]) -> Any:
    """The device with the most bytes."""
    sizes: Dict[Any, int] = {}
    for one in tensors.values():
        sizes[one.device] = sizes.get(one.device, 0) + one.numel() * one.element_size()
    return max(sizes, key=lambda device: (sizes[device], str(device))) if sizes else torch.device("cpu")


def write_object(
    client: Client,
    name: str,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str],
    *,
    device: Any,
    mode: int,
    replace: bool,
    attributes: Optional[Mapping[str, Any]] = None,
) -> Tuple[Object, Table, Dict[str, Any]]:
    """An object without a name, its table, and its tensors, to which those given are copied in the order of torch's current stream. The
    caller publishes it when the copies are complete."""
    for key, one in tensors.items():
        check_tensor(key, one)
    table = Table.layout([describe(key, one) for key, one in tensors.items()], metadata)
    made = client.create(
        name,
        table.size,
        device=daemon_device(client, device),
        mode=mode,
        replace=replace,
        unnamed=True,
        attributes={ATTRIBUTE: table.attribute(), **(attributes or {})},
    )
    everything = whole(made)
    placed = views_in(everything, table.tensors)
    with torch.no_grad():
        header = torch.frombuffer(bytearray(table.header), dtype=torch.uint8)
        if everything.is_cuda:  # not made.write(), which waits for the default stream
            header = header.pin_memory()
        everything[: header.numel()].copy_(header, non_blocking=True)
        for key, one in tensors.items():
            to = placed[key]
            if one.dtype != to.dtype or one.element_size() == 1:  # older versions copy no float8
                one, to = _bytes(one), _bytes(to)
            to.copy_(one, non_blocking=one.device.type == to.device.type == "cuda")
    return made, table, placed


def _bytes(tensor: Any) -> Any:
    return tensor if tensor.dtype in (torch.uint8, torch.int8, torch.bool) else tensor.view(torch.uint8)
