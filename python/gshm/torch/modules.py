"""Modules whose parameters are in one shared, sealed object."""
from __future__ import annotations

import errno
import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ..client import Client
from ..errors import Error
from ..objects import Object
from ..references import default_client
from ..tables import Table, Tensor
from .views import describe, place_of, torch, views
from .writing import check_dense, main_device, write_object

STAMP = "gshm.module"  # in the metadata of the object: what may be attached


class Mismatch(ValueError):
    """The module does not fit the object. `differences` has a sentence for each."""

    def __init__(self, name: str, differences: List[str]) -> None:
        more = f"; and {len(differences) - 10} more" if len(differences) > 10 else ""
        super().__init__(f"the module does not fit {name!r}: {'; '.join(differences[:10])}{more}")
        self.differences = differences


class Slot(NamedTuple):
    """The place of a parameter or a buffer in a module."""

    name: str
    owner: Any
    key: str
    tensor: Any
    is_parameter: bool


def slots(module: Any) -> Iterator[Slot]:
    """All of them, tied ones more than once."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        dot = prefix + "." if prefix else ""
        for group, is_parameter in ((owner._parameters, True), (owner._buffers, False)):
            for key, tensor in group.items():
                if tensor is not None:
                    yield Slot(dot + key, owner, key, tensor, is_parameter)


def find_ties(module: Any) -> Dict[str, str]:
    """For every name the first name of the same tensor."""
    first: Dict[Any, str] = {}
    found = {}
    for slot in slots(module):
        one = slot.tensor
        check_dense(slot.name, one)
        place: Any = id(one)
        if one.device.type != "meta" and one.numel():  # two parameters may be made of the same memory
            place = (*place_of(one), slot.is_parameter)
        found[slot.name] = first.setdefault(place, slot.name)
    return found


def class_of(module: Any) -> str:
    return f"{type(module).__module__}:{type(module).__qualname__}"


def same_class(one: str, other: str) -> bool:
    """A class of a script has the module __main__ there, and another one where it is imported."""
    (module, name), (other_module, other_name) = one.split(":"), other.split(":")
    return name == other_name and (module == other_module or "__main__" in (module, other_module))


def check_meta(module: Any, names: List[str]) -> None:
    """Tensors that are plain attributes are neither shared nor replaced."""
    for prefix, owner in module.named_modules():
        for key, value in vars(owner).items():
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                names = [*names, f"{prefix}.{key}" if prefix else key]
    if names:
        raise ValueError(f"tensors on the device meta have no bytes: {', '.join(names)}")


def share_module(
    module: Any, name: str, *, client: Optional[Client] = None, device: Any = None, mode: int = 0o600, replace: bool = False
) -> Object:
    """Moves the parameters of a module to a new, sealed object, and copies its buffers there. The module goes on with the
    shared memory: its parameters are the same, need no gradient any more, and must not be written."""
    connection = client or default_client()
    all_slots = list(slots(module))
    check_meta(module, [one.name for one in all_slots if one.tensor.device.type == "meta"])
    ties = find_ties(module)
    kept = {one.name: one.tensor.detach() for one in all_slots if ties[one.name] == one.name}
    stamp = {
        "class": class_of(module),
        "tied": {name: first for name, first in ties.items() if name != first},
        "buffers": [one.name for one in all_slots if not one.is_parameter],
    }
    made, _, placed = write_object(
        connection,
        name,
        kept,
        {"format": "pt", STAMP: json.dumps(stamp)},
        device=main_device(kept) if device is None else device,
        mode=mode,
        replace=replace,
    )
    made.publish(name, replace=replace)
    _put(all_slots, ties, placed)
    return made


def attach_module(module: Any, name: str, *, client: Optional[Client] = None, wait: Optional[float] = None) -> Any:
    """Gives a module of the same class and shapes, also one on the device meta, the parameters of share_module() in another
    process, without a copy, and copies of its buffers. Mismatch names what does not fit; the module is unchanged then."""
    opened = (client or default_client()).open(name, wait=wait, sealed=True)
    try:
        table = Table.of_object(opened)
    except Error as error:
        if error.errno != errno.EBADMSG:
            raise
        raise Mismatch(name, ["the object was not made by share_module(): it has no tensors"]) from None
    if STAMP not in table.metadata:
        raise Mismatch(name, ["the object was not made by share_module()"])
    stamp = json.loads(table.metadata[STAMP])
    all_slots = list(slots(module))
    differences = compare(module, all_slots, table, stamp)
    if differences:
        raise Mismatch(name, differences)
    check_meta(module, [])
    ties = {one.name: stamp["tied"].get(one.name, one.name) for one in all_slots}
    _put(all_slots, ties, views(opened, table.tensors))
    return module


def compare(module: Any, all_slots: List[Slot], table: Table, stamp: Dict[str, Any]) -> List[str]:
    """The differences between the module and the object, in sentences."""
    found = []
    if not same_class(class_of(module), stamp["class"]):
        found.append(f"its class is {class_of(module)}, not {stamp['class']}")
    tied: Dict[str, str] = stamp["tied"]
    there: Dict[str, Tensor] = {one.name: one for one in table.tensors}
    there.update({name: there[first] for name, first in tied.items()})
    here = {one.name: one for one in all_slots}
    for name in there:
        if name not in here:
            found.append(f"it has no {name}")
    buffers = set(stamp["buffers"])
    for name, slot in here.items():
        if name not in there:
            found.append(f"the object has no {name}")
            continue
        check_dense(name, slot.tensor)
        own = describe(name, slot.tensor)
        if own.shape != there[name].shape:
            found.append(f"{name} has the shape {list(own.shape)}, not {list(there[name].shape)}")
        if own.dtype != there[name].dtype:
            found.append(f"{name} has the type {own.dtype}, not {there[name].dtype}")
        if slot.is_parameter == (name in buffers):
            kinds = ("parameter", "buffer") if slot.is_parameter else ("buffer", "parameter")
            found.append(f"{name} is a {kinds[0]}, not a {kinds[1]}")
    for name, first in find_ties(module).items():
        if name != first and name in there and first in there and tied.get(name, name) != tied.get(first, first):
            found.append(f"{name} and {first} are one tensor, not two")
    return found


def _put(all_slots: List[Slot], ties: Dict[str, str], placed: Dict[str, Any]) -> None:
    """Parameters get the shared memory, buffers a copy. A parameter stays the same one if torch can change its memory."""
    made: Dict[str, Any] = {}
    for slot in all_slots:
        first = ties[slot.name]
        if not slot.is_parameter:
            if first not in made:
                made[first] = placed[first].clone()
            slot.owner._buffers[slot.key] = made[first]
            continue
        if first not in made:
            made[first] = _with_memory(slot.tensor, placed[first])
        slot.owner._parameters[slot.key] = made[first]


def _with_memory(parameter: Any, memory: Any) -> Any:
    parameter.grad = None
    if parameter.device == memory.device:
        parameter.data = memory
        return parameter.requires_grad_(False)
    new = torch.nn.Parameter(memory, requires_grad=False)
    new.__dict__.update(parameter.__dict__)
    return new
