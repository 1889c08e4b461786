"""Nested states (of models, optimisers, ...) as named tensors and a JSON text for the rest."""
from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Tuple

from .views import place_of, torch
from .writing import check_tensor

KEY = "gshm.state"  # in the metadata of an object

# In the text a container or a tensor is a list, whose first element tells what it is.
_PLAIN = (str, int, float, bool, type(None))


def is_name(name: str) -> bool:
    """Whether a header may have it: such names are names of objects, too."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    parts = encoded.split(b"/")
    return len(encoded) < 4000 and b"\0" not in encoded and all(0 < len(one) < 250 and one not in (b".", b"..") for one in parts)


def flatten(state: Any) -> Tuple[Dict[str, Any], str]:
    """The tensors of a state by name, each one once, and the text that puts them together again."""
    tensors: Dict[str, Any] = {}
    known: Dict[Any, str] = {}

    def name_for(path: Tuple[str, ...]) -> str:
        name = ".".join(path)
        if not is_name(name):
            name = "tensor"
        chosen, number = name, 1
        while chosen in tensors:
            number += 1
            chosen = f"{name}#{number}"
        return chosen

    def put(value: Any, path: Tuple[str, ...]) -> Any:
        if isinstance(value, torch.Tensor):
            check_tensor(".".join(path) or "the state", value)
            one = value.detach()
            place: Any = place_of(one)
            if one.numel() == 0:
                place = id(value)
            if place not in known:
                known[place] = name_for(path)
                tensors[known[place]] = one.resolve_conj().resolve_neg()
            return ["tensor", known[place], str(one.device.type)]
        if isinstance(value, Mapping):
            return ["dict", [[put_key(key, path), put(one, (*path, str(key)))] for key, one in value.items()]]
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [put(one, (*path, str(index))) for index, one in enumerate(value)]]
        if isinstance(value, _PLAIN):
            return value
        raise TypeError(f"{'.'.join(path) or 'the state'} is a {type(value).__name__}, which cannot be saved")

    def put_key(key: Any, path: Tuple[str, ...]) -> Any:
        if not isinstance(key, _PLAIN):
            raise TypeError(f"{'.'.join(path) or 'the state'} has a key that is a {type(key).__name__}")
        return key

    return tensors, json.dumps(put(state, ()))


def unflatten(text: str, tensors: Mapping[str, Any]) -> Any:
    """The state. Tensors that were on the CPU are there again."""
    back: Dict[Tuple[str, str], Any] = {}

    def get(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, content = value[:2]
        if kind == "tensor":
            key = (content, value[2])
            if key not in back:
                one = tensors[content]
                back[key] = one.cpu() if value[2] == "cpu" and one.device.type != "cpu" else one
            return back[key]
        if kind == "dict":
            return {key: get(one) for key, one in content}
        return tuple(map(get, content)) if kind == "tuple" else [get(one) for one in content]

    return get(json.loads(text))
