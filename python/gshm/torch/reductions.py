"""Tensors of gshm in torch.multiprocessing: they are sent as references, and opened by the receiver.

The sender may be gone by then, if the memory is an object with a name, or a slab that is kept. torch's own way, for all other
tensors, is unchanged.
"""
from __future__ import annotations

import importlib
from multiprocessing.reduction import ForkingPickler
from typing import Any, Optional, Tuple

from ..errors import Error
from ..pools import locate
from ..references import open_reference, shared_client
from .views import storage_of, torch

_original: Any = None


def span(tensor: Any) -> int:
    """The bytes from the first to the last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int((last + 1) * tensor.element_size())


def reference(tensor: Any) -> Optional[Tuple[Any, ...]]:
    """The arguments of rebuild() for memory of gshm; None: the memory is not of gshm, or cannot be opened by others."""
    if tensor.numel() == 0 or tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
        return None
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_quantized:
        return None
    size = span(tensor)
    try:
        place = locate(tensor.data_ptr())
        if place.size_bytes < size:
            return None
        client = shared_client(place.dir)
        opened = client.open_id(place.id, map=False)
    except Error:
        return None  # not of gshm, or without a name by which others could open it
    if tensor.device.type == "cuda" and not opened.sealed:  # the receiver's work begins after the sender's
        torch.cuda.current_stream(tensor.device).synchronize()
    return (client.dir, client.instance, place.id, None, not opened.sealed, place.offset, size, *_form(tensor))


def _form(tensor: Any) -> Tuple[Any, ...]:
    kind = str(tensor.dtype).replace("torch.", "")
    return kind, tuple(tensor.shape), tensor.stride(), tensor.requires_grad, type(tensor) is torch.nn.Parameter


def reduce_tensor(tensor: Any) -> Any:
    if not (tensor.requires_grad and not tensor.is_leaf):  # torch's reduction says why it refuses these
        arguments = reference(tensor)
        if arguments is not None:
            return rebuild, arguments
    return _original(tensor)


def rebuild(
    dir: str, instance: int, id: int, name: Optional[str], write: bool, offset: int, size: int, kind: str,
    shape: Tuple[int, ...], strides: Tuple[int, ...], requires_grad: bool, is_parameter: bool,
) -> Any:
    array = open_reference(dir, instance, id, name, write, offset, (size,), "uint8")
    everything = torch.from_dlpack(array)
    base = torch.empty(0, dtype=getattr(torch, kind), device=everything.device)
    tensor = base.set_(storage_of(everything), 0, shape, strides)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def install() -> None:
    """Registers the reduction. Once for the process."""
    global _original
    if _original is not None:
        return
    reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
    _original = reductions.reduce_tensor
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
