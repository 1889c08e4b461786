"""Safetensors files for tests, made without the package and without gshm."""
import hashlib
import json
import struct

SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8,
    "I64": 8, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}  # fmt: skip


def size_of(kind, shape):
    size = SIZES[kind]
    for one in shape:
        size *= one
    return size


def content(name, size, kind="U8"):
    """Bytes that differ from tensor to tensor and from place to place. Below 64 no type has a NaN."""
    mask = 1 if kind == "BOOL" else 63
    return hashlib.shake_128(name.encode()).digest(size).translate(bytes(one & mask for one in range(256)))


def make(tensors, metadata=None):
    """The bytes of a file with tensors {name: (type, shape)}."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape) in tensors.items():
        part = content(name, size_of(kind, shape), kind)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def raw(header, data=b""):
    """A file with any header text."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text)) + text + data


def make_folder(folder, shards, metadata=None):
    """A sharded model: [{name: (type, shape)}, ...], with its index."""
    folder.mkdir(exist_ok=True)
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (folder / file).write_bytes(make(tensors, metadata))
        weight_map.update({name: file for name in tensors})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return folder


# Files that the original refuses, with a word of our reason.
MALFORMED = {
    "empty": b"",
    "no header": struct.pack("<Q", 60),
    "too large": b"\xff" * 8 + b"{}",
    "one more than the limit": struct.pack("<Q", 100_000_001) + b"{}",
    "no UTF-8": struct.pack("<Q", 1) + b"\xff",
    "no JSON": raw("{"),
    "size": raw('{"a":{"dtype":"I32","shape":[2,2],"data_offsets":[0,4]}}', bytes(4)),
    "overflow": raw('{"a":{"dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,16]}}', bytes(16)),
    "overflow of bits": raw('{"a":{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}}', bytes(16)),
    "overlap": raw('{"a":{"dtype":"I8","shape":[16],"data_offsets":[0,16]},"b":{"dtype":"I8","shape":[16],"data_offsets":[0,16]}}', bytes(16)),
    "tail": raw('{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}', bytes(36)),
    "missing bytes": raw('{"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}', bytes(2)),
    "half bytes": raw('{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}', bytes(2)),
    "duplicate": raw('{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "number in metadata": raw('{"__metadata__":{"a":1}}'),
    "float": raw('{"a":{"dtype":"I8","shape":[1e0],"data_offsets":[0,1]}}', b"x"),
    "negative": raw('{"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,1]}}', b"x"),
    "text as offset": raw('{"a":{"dtype":"I8","shape":[1],"data_offsets":["0","1"]}}', b"x"),
    "unknown type": raw('{"a":{"dtype":"I7","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "name": raw('{"..":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "empty name": raw('{"":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "nested": raw("[" * 100000 + "]" * 100000),
    "order mark": raw(b"\xef\xbb\xbf{}"),
}
ACCEPTED = {
    "nothing": raw("{}      "),
    "spaces": raw("\t\n{}\r \t\n"),
    "scalar": raw('{"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}', bytes(4)),
    "no elements": raw('{"a":{"dtype":"I32","shape":[2,0],"data_offsets":[0,0]}}'),
    "metadata": raw('{"__metadata__":{"a":"b"}}'),
}
