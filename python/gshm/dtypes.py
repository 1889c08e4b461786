"""Types of elements: their names, and what DLPack, NumPy and the buffer protocol call them."""
from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

# Codes of DLPack's DLDataType.
INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6
# Float8 types have had codes since DLPack 1.1.
FLOAT8_SINCE = (1, 1)


class DType(NamedTuple):
    name: str
    code: int  # of DLPack
    bits: int
    typestr: Optional[str]  # of NumPy's array interface; None: it has none
    format: str  # of a memoryview; bytes for types that it lacks

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def has_format(self) -> bool:
        return self.format != "B" or self.name == "uint8"

    @property
    def is_float8(self) -> bool:
        return self.name.startswith("float8")

    def __str__(self) -> str:
        return self.name


def _all() -> Dict[str, DType]:
    found = [
        DType("bool", BOOL, 8, "|b1", "?"),
        DType("uint8", UINT, 8, "|u1", "B"),
        DType("int8", INT, 8, "|i1", "b"),
        DType("float16", FLOAT, 16, "<f2", "B"),
        DType("float32", FLOAT, 32, "<f4", "f"),
        DType("float64", FLOAT, 64, "<f8", "d"),
        DType("bfloat16", BFLOAT, 16, None, "B"),
        DType("complex64", COMPLEX, 64, "<c8", "B"),
        DType("complex128", COMPLEX, 128, "<c16", "B"),
    ]
    for bits, letter in ((16, "h"), (32, "i"), (64, "q")):
        found.append(DType(f"int{bits}", INT, bits, f"<i{bits // 8}", letter))
        found.append(DType(f"uint{bits}", UINT, bits, f"<u{bits // 8}", letter.upper()))
    for name, code in (("e4m3fn", 10), ("e4m3fnuz", 11), ("e5m2", 12), ("e5m2fnuz", 13), ("e8m0fnu", 14)):
        found.append(DType("float8_" + name, code, 8, None, "B"))
    return {one.name: one for one in found}


DTYPES = _all()

# Short names, as files and the attribute `dtype` of other programs have them.
_ALIASES = {"half": "float16", "bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e8m0": "float8_e8m0fnu", "c64": "complex64"}
for _short, _long in (("f", "float"), ("i", "int"), ("u", "uint")):
    for _bits in (8, 16, 32, 64):
        if _long + str(_bits) in DTYPES:
            _ALIASES[_short + str(_bits)] = _long + str(_bits)
for _name in DTYPES:
    if _name.startswith("float8_"):
        _ALIASES.setdefault(_name.replace("float8_", "f8_"), _name)
_TYPESTRS = {one.typestr: one for one in DTYPES.values() if one.typestr}

UINT8 = DTYPES["uint8"]


def dtype(value: Any) -> DType:
    """The type with this name ("bfloat16", "f32", "<f4"), or of a NumPy or torch dtype."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = value
    elif isinstance(value, type):  # numpy.float32
        name = value.__name__
    else:
        name = getattr(value, "name", None) or str(value)
    found = _TYPESTRS.get(name)
    if found is not None:
        return found
    name = name.lower()
    if name.startswith("torch."):
        name = name[len("torch.") :]
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise TypeError(f"{value!r} is no type of elements; known are: {', '.join(sorted(DTYPES))}")
    return DTYPES[name]
