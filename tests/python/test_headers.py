"""Any header, whole or damaged, is read as the rules of the format say (docs/tensors.md), which are written a second time here."""
import json
import re
import struct

import hypothesis
import hypothesis.strategies as st
import pytest
from files import SIZES, make, raw

import gshm
from gshm.tables import Table, Tensor

BITS = {**{kind: 8 * size for kind, size in SIZES.items()}, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


class Refused(Exception):
    pass


def demand(condition):
    if not condition:
        raise Refused


def number(text):
    demand(re.fullmatch("0|[1-9][0-9]*", text) and int(text) < 1 << 64)
    return int(text)


def is_text(value):
    return isinstance(value, str) and not any("\ud800" <= one < "\ue000" for one in value)


def members(pairs):
    """An object as the list of its members, whose keys may be duplicates."""
    demand(all(is_text(key) for key, _ in pairs))
    return Members(pairs)


class Members(list):
    def unique(self, *names):
        found = {}
        for key, value in self:
            demand(key not in found or (names and key not in names))
            found[key] = value
        return found


def read(data):
    """{name: (type, shape, begin, end)}, with offsets in the data, and the metadata. Refused: the format does not permit it."""
    demand(len(data) >= 8)
    (length,) = struct.unpack("<Q", data[:8])
    demand(length <= 100_000_000 and length <= len(data) - 8)
    try:
        # Numbers stay texts: those of members that nobody asks for may be any.
        header = json.loads(
            data[8 : 8 + length].decode("utf-8"), object_pairs_hook=members, parse_int=Number, parse_float=Number,
            parse_constant=lambda text: demand(False),
        )  # fmt: skip
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise Refused from None
    demand(isinstance(header, Members))
    tensors = header.unique()
    metadata = tensors.pop("__metadata__", Members())
    demand(isinstance(metadata, Members))
    metadata = metadata.unique()
    demand(all(is_text(value) and "\0" not in key for key, value in metadata.items()))
    found = {}
    for name, info in tensors.items():
        parts = name.split("/")
        demand("\0" not in name and len(name.encode()) < 4096)
        demand(all(part not in ("", ".", "..") and len(part.encode()) < 256 for part in parts))
        demand(isinstance(info, Members))
        info = info.unique("dtype", "shape", "data_offsets")
        demand({"dtype", "shape", "data_offsets"} <= set(info))
        kind, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
        demand(isinstance(kind, str) and kind in BITS and is_list(shape) and is_list(offsets))
        shape, offsets = [integer(one) for one in shape], [integer(one) for one in offsets]
        demand(len(shape) <= 64 and len(offsets) == 2 and offsets[0] <= offsets[1] <= len(data) - 8 - length)
        product = 1
        for one in shape:
            product *= one
            demand(product < 1 << 64)
        demand(product * BITS[kind] < 1 << 64 and product * BITS[kind] % 8 == 0)
        demand(product * BITS[kind] // 8 == offsets[1] - offsets[0])
        found[name] = (kind, tuple(shape), *offsets)
    at = 0
    for begin, end in sorted(one[2:] for one in found.values()):
        demand(begin == at)
        at = end
    demand(at == len(data) - 8 - length)
    return found, metadata


class Number(str):
    """As it is written."""


def integer(value):
    demand(isinstance(value, Number))
    return number(value)


def is_list(value):
    return isinstance(value, list) and not isinstance(value, Members)


names = st.text("abc./é", min_size=1, max_size=6) | st.sampled_from(["__metadata__", "a" * 256, "..", "\0", ""])
dimensions = st.integers(0, 4) | st.sampled_from([1 << 31, (1 << 63) - 1, (1 << 64) - 2, 1 << 64, -1])
plain_names = st.text("abcxyz", min_size=1, max_size=4)


@st.composite
def headers(draw):
    """Tensors that are mostly right, as the members of a header, and their number of bytes."""
    entries, at = [], 0
    for name in draw(st.lists(plain_names, max_size=4, unique=True)):
        kind, shape = draw(st.sampled_from(sorted(BITS))), draw(st.lists(st.integers(0, 4), max_size=3))
        bits = BITS[kind]
        for one in shape:
            bits *= one
        entries.append([name, {"dtype": kind, "shape": shape, "data_offsets": [at, at + bits // 8]}])
        at += bits // 8
    if draw(st.booleans()):
        entries.append(["__metadata__", draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2))])
    return draw(st.permutations(entries)), at


def text_of(entries):
    """Also with a key twice."""
    return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(info)}" for name, info in entries) + "}"


def damage(draw, entries, size):
    """The text of the header after one change, and the bytes of the data."""
    which = draw(st.sampled_from(["nothing", "member", "dimension", "offset", "size", "name", "twice", "character", "space", "value"]))
    tensors = [info for name, info in entries if name != "__metadata__"]
    one = draw(st.sampled_from(tensors)) if tensors else None
    if which == "member" and one is not None:
        del one[draw(st.sampled_from(sorted(one)))]
    elif which == "dimension" and one is not None:
        one["shape"].insert(0, draw(dimensions))
    elif which == "offset" and one is not None:
        one["data_offsets"][draw(st.integers(0, 1))] += draw(st.integers(-3, 3))
    elif which == "size":
        size = max(0, size + draw(st.integers(-3, 3)))
    elif which == "name" and entries:
        entries[0][0] = draw(names)
    elif which == "twice" and entries:
        entries.append(draw(st.sampled_from(entries)))
    elif which == "value" and one is not None:
        odd = [1.0, -0.0, None, True, "8", [], {}, [[1]], 1 << 64, [1, 2, 3], ["0", "1"], {"a": 1}]
        one[draw(st.sampled_from(["dtype", "shape", "data_offsets", "other"]))] = draw(st.sampled_from(odd))
    text = text_of(entries)
    if which == "character":
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text('{}[]",:0-9.eE\\u \n\t\ufeffé\x00tfn', max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    elif which == "space":
        text = draw(st.text(" \t\r\n\v", max_size=3)) + text + draw(st.text(" \t\r\n\0", max_size=3))
    return text, size


@hypothesis.settings(max_examples=2000)
@hypothesis.given(st.data())
def test_headers_are_read_by_the_rules(data):
    entries, size = data.draw(headers())
    text, size = damage(data.draw, [list(one) for one in entries], size)
    block = raw(text, bytes(size))
    try:
        expected, metadata = read(block)
    except Refused:
        with pytest.raises(gshm.Error) as raised:
            Table.of_memory(block)
        assert raised.value.strerror
        return
    table = Table.of_memory(block)
    begin = len(table.header)
    assert {one.name: (one.dtype, one.shape, one.offset - begin, one.offset + one.nbytes - begin) for one in table.tensors} == expected
    assert table.metadata == metadata and table.size == len(block)


@hypothesis.settings(max_examples=500)
@hypothesis.given(st.binary(max_size=40), st.integers(0, 200), st.integers(0, 8))
def test_bytes_anywhere_in_a_file(noise, at, left_out):
    block = make({"w": ("F32", (4, 6)), "b": ("BF16", (3,))}, {"format": "pt"})
    block = block[:at] + noise + block[at + left_out :]
    try:
        expected, _ = read(block)
    except Refused:
        with pytest.raises(gshm.Error):
            Table.of_memory(block)
        return
    assert {one.name for one in Table.of_memory(block).tensors} == set(expected)


def test_a_header_of_empty_tensors_is_bounded(tmp_path):
    """One that fits the limit of the bytes has 1.8 million: their objects take Python 10 s and 1 GiB."""
    entry = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    most = 250_000
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw("{" + ",".join(entry % n for n in range(most + 1)) + "}"))
    with pytest.raises(gshm.Error, match="more than 250000 tensors"):
        Table.of_path(path)
    with pytest.raises(gshm.Error, match="more than 250000 tensors"):
        Table.of_memory(path.read_bytes())
    path.write_bytes(raw("{" + ",".join(entry % n for n in range(most)) + "}"))
    assert len(Table.of_path(path).tensors) == most
    with pytest.raises(gshm.Invalid, match="250001 tensors; there may be 250000"):
        Table.layout([Tensor(str(n), "U8", (0,)) for n in range(most + 1)])
