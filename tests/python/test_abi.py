"""The declarations in gshm/_abi.py are those of gshm.h."""
import ctypes
import re

from conftest import SOURCE

from gshm import _abi

HEADER = re.sub(r"/\*.*?\*/", "", (SOURCE / "include/gshm/gshm.h").read_text(), flags=re.DOTALL)


def test_every_function_is_declared_with_its_parameters():
    found = {}
    for name, parameters in re.findall(r"\bgshm_([a-z0-9_]+)\(([^;{}]*)\)(?: GSHM_NOEXCEPT)?;", HEADER):
        parameters = re.sub(r"\([^()]*\)\([^()]*\)", "function", parameters)  # pointers to functions
        found[name] = 0 if parameters == "void" else parameters.count(",") + 1
    ours = dict(one.split(":") for one in _abi.SIGNATURES.split())
    assert {name: len(letters) - 1 for name, letters in ours.items()} == found


def camel(name):
    return "".join(part.capitalize() for part in name[len("gshm_") :].split("_"))


def test_structs_have_the_layout_of_the_library():
    layout = (SOURCE / "tests/abi/layout.c").read_text()
    sizes = re.findall(r"^LAYOUT_SIZE\((gshm_\w+), (\d+)\);", layout, re.MULTILINE)
    checked = 0
    for name, size in sizes:
        struct = getattr(_abi, camel(name))
        assert ctypes.sizeof(struct) == int(size), name
        for field, at, width in re.findall(rf"^LAYOUT\({name}, (\w+), (\d+), (\d+)\);", layout, re.MULTILINE):
            member = getattr(struct, field)
            assert (member.offset, member.size) == (int(at), int(width)), (name, field)
            checked += 1
    assert len(sizes) >= 20 and checked >= 100


def test_flags_have_the_values_of_the_library():
    values = dict(re.findall(r"\bGSHM_([A-Z_]+) = (1u << \d+|\d+)[,} ]", HEADER))
    for name, value in values.items():
        if hasattr(_abi, name):
            assert getattr(_abi, name) == eval(value.replace("u", "")), name
    for prefix, table in (("KIND", _abi.KINDS), ("STATE", _abi.STATES), ("EVENT", _abi.EVENTS), ("PATH", _abi.PATHS)):
        ours = {name.upper(): number for number, name in table.items() if number}
        theirs = {
            name[len(prefix) + 1 :]: eval(value.replace("u", ""))
            for name, value in values.items()
            if name.startswith(prefix + "_")
        }
        assert ours == theirs, prefix
