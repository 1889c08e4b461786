"""libgshm by ctypes: where it is, its structs, its functions. Nothing is loaded before the first call."""
from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (
    CFUNCTYPE,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, List, Tuple

SONAME = "libgshm.so.0"

# ---- flags and states, as in gshm.h ----
KEEP, COMPRESSIBLE, DEDICATED, REPLACE, UNNAMED, OWNER, EMPTY = (1 << bit for bit in range(7))
NO_MAP, WRITE, SEALED_ONLY, RECURSIVE, LAZY, FORMER = (1 << bit for bit in range(8, 14))
MOVE_KEEP_HOLDERS = 1
MOUNT_READ_ONLY = 1
OPTION_NEEDS_RESTART = 1
CHANGE_MODE, CHANGE_OWNER, CHANGE_KEEP = 1, 2, 4
WAIT_EXISTS, WAIT_SEALED, WAIT_GONE = 1, 2, 3
KINDS = {1: "object", 2: "directory", 3: "symlink", 4: "special"}
STATES = {0: "", 1: "open", 2: "sealed"}
KIND_DIRECTORY, KIND_SYMLINK = 2, 3
STATE_SEALED = 2
EVENTS = {
    1: "created",
    2: "sealed",
    3: "deleted",
    4: "renamed",
    5: "replaced",
    6: "existing",
    7: "ready",
    8: "overflow",
    9: "expired",
}
WATCH_EXISTING = 1
MIRROR_LOAD, MIRROR_WRITE = 1, 2
TRANSFER_VERIFY = 1
PATHS = {1: "direct", 2: "cached", 4: "staged", 8: "hole", 16: "cufile", 32: "threads", 64: "stream"}
HANDLES = {1: "fd", 2: "fabric", 4: "dmabuf", 8: "ipc"}
RING_SHARED = 1
IO_READ, IO_WRITE = 1, 2
TENSOR_READ_ONLY, TENSOR_COPIED = 1, 2
LAYOUT_FILE = 1
LOAD_EXISTING = 1 << 14
EVICTABLE = 1 << 15
ANY_DEVICE = 1 << 17
CREATE_EPHEMERAL, CREATE_TTL_UNUSED, STAT_PINNED = (1 << bit for bit in range(18, 21))
TTL_UNUSED = CREATE_TTL_UNUSED
PART_SHARED = 1
HANDLE_BYTES = 64
NO_STREAM = -1


class Sized(Structure):
    """A struct that begins with struct_size."""

    _defaults_: Dict[str, int] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__(**{"struct_size": ctypes.sizeof(self), **self._defaults_, **values})


def _fields(*fields: Tuple[Any, str]) -> List[Tuple[str, Any]]:
    """(type, "names") pairs, after struct_size."""
    return [("struct_size", c_uint32)] + [(name, kind) for kind, names in fields for name in names.split()]


class ConnectOptions(Sized):
    _fields_ = _fields((c_int32, "timeout_ms"), (c_char_p, "dir"))


class DaemonInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "protocol"),
        (c_int32, "pid"),
        (c_uint32, "sessions"),
        (c_uint64, "instance objects extents"),
        (c_char * 32, "version"),
        (c_char * 256, "mountpoint"),
        (c_int32, "keeper"),
        (c_uint32, "reserved"),
    )


class MountOptions(Sized):
    _fields_ = _fields((c_uint32, "flags"), (c_char_p, "subdirectory source"))


class MountInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"), (c_char * 1024, "path"), (c_char * 1024, "subdirectory"), (c_char * 256, "source")
    )


class OptionChange(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"), (c_char * 64, "option"), (c_char * 256, "former"), (c_char * 256, "value")
    )


class DeviceInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "handle_kinds"),
        (c_char * 16, "name"),
        (c_char * 48, "uuid"),
        (c_char * 96, "model"),
        (c_uint64, "capacity_bytes used_bytes object_bytes granularity_bytes unlinked_bytes"),
        (c_uint32, "compressible failed"),
        (c_char * 128, "failure"),
        (c_uint64, "evictable_bytes evicted_bytes evicted_objects"),
    )


class TierInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"),
        (c_char * 1024, "name"),
        (c_uint64, "capacity_bytes used_bytes objects"),
        (c_char * 256, "failure"),
    )


class AclEntry(Structure):
    _fields_ = [("tag", c_uint16), ("rights", c_uint16), ("id", c_uint32)]


class ShareInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "reserved"), (c_uint64, "changed"), (c_char * 1024, "blocked_by"), (AclEntry, "blocked")
    )


class Attribute(Structure):
    _fields_ = [("name", c_char_p), ("value", c_void_p), ("value_bytes", c_size_t)]


class CreateSpec(Sized):
    _fields_ = _fields(
        (c_uint32, "mode"),
        (c_char_p, "name"),
        (c_uint64, "size_bytes"),
        (c_char_p, "device"),
        (c_uint32, "flags reserved"),
        (c_void_p, "attributes"),
        (c_size_t, "attribute_count"),
        (c_uint32, "uid gid"),
        (c_uint64, "ttl_ms"),
    )


class StatInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "kind state mode uid gid"),
        (c_uint64, "id size_bytes allocation_bytes extent extent_offset"),
        (c_int64, "created_ns modified_ns"),
        (c_uint32, "leases flags"),
        (c_char * 16, "device"),
        (c_char * 16, "tier"),
        (c_uint64, "ttl_ms"),
        (c_int64, "expires_ns"),
    )


class Holder(Sized):
    _fields_ = _fields((c_int32, "pid"), (c_uint32, "uid leases writable"), (c_char * 32, "command"))


class MakeSpec(Sized):
    _fields_ = _fields((c_uint32, "kind"), (c_char_p, "name target device"), (c_uint32, "mode flags uid gid"))


class Changes(Sized):
    _fields_ = _fields((c_uint32, "what mode uid gid"))


class Event(Sized):
    _fields_ = _fields(
        (c_uint32, "event kind state"),
        (c_uint64, "id replaced_id size_bytes"),
        (c_int64, "time_ns"),
        (c_char * 16, "device"),
        (c_char_p, "name old_name"),
    )


class Limit(Sized):
    _fields_ = _fields(
        (c_uint32, "kind id fields"),
        (c_char_p, "path device"),
        (c_uint64, "bytes soft_bytes objects soft_objects grace_s"),
        (c_uint32, "percent reserved"),
        (c_uint64, "used_bytes used_objects unlinked_bytes"),
        (c_int64, "bytes_until_ns objects_until_ns"),
    )


class MirrorOptions(Sized):
    _fields_ = _fields((c_uint32, "flags"), (c_uint64, "offset size_bytes"), (c_void_p, "stream"))


class PoolOptions(Sized):
    _fields_ = _fields((c_uint32, "mode"), (c_char_p, "device name"), (c_uint64, "slab_bytes limit_bytes"), (c_uint32, "flags reserved"))


class PoolStats(Sized):
    _fields_ = _fields(
        (c_uint32, "slabs"), (c_uint64, "reserved_bytes used_bytes peak_used_bytes allocations stream_waits")
    )


class Location(Sized):
    _fields_ = _fields((c_uint32, "reserved"), (c_uint64, "id offset size_bytes"), (c_char * 16, "device"))


class HandleInfo(Sized):
    _fields_ = _fields((c_uint32, "kind"), (c_uint64, "extent_bytes offset size_bytes"))


class TransferInfo(Sized):
    _fields_ = _fields((c_uint32, "path"), (c_uint64, "bytes duration_ns"))


PROGRESS = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class TransferOptions(Sized):
    _fields_ = _fields((c_uint32, "flags"), (PROGRESS, "progress"), (c_void_p, "context"))


class RingOptions(Sized):
    _fields_ = _fields((c_uint32, "entries flags reserved"))


class Range(Structure):
    _fields_ = [("object", c_void_p), ("offset", c_uint64), ("bytes", c_uint64)]


class Io(Sized):
    _fields_ = _fields(
        (c_uint32, "operation file flags"),
        (c_uint64, "file_offset"),
        (c_void_p, "ranges"),
        (c_size_t, "range_count"),
        (c_uint64, "user_data"),
    )


class Completion(Structure):
    _fields_ = [("user_data", c_uint64), ("result", c_int64), ("path", c_uint32), ("reserved", c_uint32)]


class TensorSpec(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"),
        (c_uint64, "offset"),
        (c_void_p, "shape strides"),
        (c_int32, "dimensions"),
        (c_uint8, "type_code type_bits"),
        (c_uint16, "type_lanes"),
    )


class TensorInfo(Sized):
    _fields_ = _fields(
        (c_uint32, "dimensions"), (c_char_p, "name dtype"), (c_void_p, "shape"), (c_uint64, "offset bytes"), (c_size_t, "file")
    )


class TensorChoice(Sized):
    _fields_ = _fields((c_int32, "dimension"), (c_char_p, "name device"), (c_uint64, "begin end"))
    _defaults_ = {"dimension": -1}


class LoadSpec(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"),
        (c_char_p, "path name device"),
        (c_uint32, "mode"),
        (c_int32, "timeout_ms"),
        (c_void_p, "choices"),
        (c_size_t, "choice_count"),
        (PROGRESS, "progress"),
        (c_void_p, "context"),
        (c_uint64, "ttl_ms"),
    )
    _defaults_ = {"timeout_ms": -1}


class ModelPart(Sized):
    _fields_ = _fields(
        (c_uint32, "flags"), (c_void_p, "object tensors"), (c_char_p, "name file device"), (c_uint64, "read_bytes")
    )


LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

# ---- functions: result and parameters, a letter each ----
_LETTERS: Dict[str, Any] = {
    "v": None,
    "i": c_int,
    "u": c_uint32,
    "q": c_uint64,
    "z": c_size_t,
    "n": c_ssize_t,
    "b": c_uint8,
    "s": c_char_p,
    "p": c_void_p,
}
SIGNATURES = """
version:s last_error:s set_log:ippi connect:ipp runtime_dir:ipz find_daemon:ispz disconnect:vp client_dir:ippz ping:ip
daemon:ipp shutdown:ipu unmount:ipu mount:ipsp unmount_at:ipsu mounts:ippzp reload:ippzp
limit_set:ipp limits:ippup limit_list_count:zp limit_list_item:ppz limit_list_free:vp devices:ippzp local_devices:ipzp create:ippp open:ipsup open_id:ipqup open_path:ipsup
create_batch:ippzpp open_batch:ippzupp open_ids:ippzupp close:vp close_batch:vpz seal:ip seal_batch:ipzp seal_name:ips
unlink:ips unlink_batch:ippzp rename:ipssu move:ipssu demote:ipsu promote:ipsu tiers:ippzp set_ttl:ipsqu pin:ips unpin:ips replace:ips publish:ipsu stat:ipsp stat_batch:ippzpp stat_object:ipp
list:ipsup listing_count:zp listing_name:spz listing_stat:ipzp listing_free:vp holders:ipspzp list_unlinked:ipp
listing_holders:ipzpzp make:ipp read_link:ipspzp link:ipss change:ipsp
acl_get:ipsupzp acl_set:ipsupz share:ipspzup unshare:ipspzup wait:ipsiip watch_create:ipsup watch_next:ippi
watch_fd:ip watch_destroy:vp set_attribute:ipsspz get_attribute:ipsspzp remove_attribute:ipss set_attributes:ipspzp
get_attributes:ipspzp attribute_list_count:zp attribute_list_item:ppz attribute_list_free:vp list_attributes:ipspzp data:pp
size:qp id:qp device:sp copy_in:ipqpz copy_out:ipqpz fill:ipqqb map_peer:ips mirror_create:ippp mirror_data:pp mirror_size:qp
mirror_mark:ipqq mirror_unmark:vp mirror_flush:ip mirror_flush_range:ipqq mirror_load:ipqq mirror_destroy:ip keep_pinned:vq
fence_open:ipup fence_publish:ippp fence_wait:ippqip fence_check:ipq fence_published:qp fence_close:vp pool_create:ippp
pool_destroy:vp pool_allocate:ipqqpp pool_allocate_object:ipqqpp pool_deallocate:ippqp pool_trim:ipq pool_seal:ip pool_get_stats:ipp
pool_locate:ipp locate:ipppz malloc:pnip malloc_pool:iipp free:vpnip export_fd:ippp export_dmabuf:ippp export_fabric:ippp export_ipc:ippp allocate:isqup
import_fd:isipup import_dmabuf:isipup import_fabric:isppup import_ipc:isppup wrap:ipqp sync:ip clone:ipqqp dlpack:ippp
dlpack_versioned:ippp dlpack_device:ippp dlpack_capsule:ppp read_file:ipqiqqpp write_file:ipqiqqpp put_file:ipsppp
put_fd:ipippp get_file:ipsspp ring_create:ippp ring_destroy:vp ring_entries:zp ring_add_file:ipip ring_remove_file:ipu
ring_prepare:ipp ring_submit:ip ring_wait:ippzzi ring_wake:vp tensors_of_path:isp tensors_of_memory:ipzp
tensors_of_object:ipp tensors_layout:ipzpzup tensors_free:vp tensors_count:zp tensors_get:ipzpzp tensors_find:ipsp
tensors_file_count:zp tensors_file:spz tensors_size:qpz tensors_header:ppzp tensors_metadata_count:zpz
tensors_metadata:ppzz load:ippp model_close:vp model_count:zp model_get_part:ipzp model_take:ppz
"""


def _find() -> ctypes.CDLL:
    """$GSHM_LIBRARY, then the library in a wheel, then the loader's search path."""
    chosen = os.environ.get("GSHM_LIBRARY")
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)
    path = chosen or (bundled if os.path.exists(bundled) else SONAME)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        remedy = (
            "GSHM_LIBRARY names a file that cannot be loaded"
            if chosen
            else "install gshm (cmake --install build; ldconfig), or set GSHM_LIBRARY to the path of libgshm.so.0"
        )
        raise ImportError(f"libgshm cannot be loaded: {error}; {remedy}") from None


def library_path() -> str:
    return str(_find()._name)


class Library:
    """The functions of libgshm without their prefix. The first access loads it."""

    _lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with self._lock:
            if "version" not in self.__dict__:
                self._load()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def _load(self) -> None:
        library = _find()
        functions = {}
        for signature in SIGNATURES.split():
            name, letters = signature.split(":")
            try:
                function = library["gshm_" + name]
            except AttributeError:
                raise ImportError(
                    f"{library._name} has no gshm_{name}: it is older than this package; install the same version"
                ) from None
            function.restype = _LETTERS[letters[0]]
            function.argtypes = [_LETTERS[letter] for letter in letters[1:]]
            functions[name] = function
        self.__dict__.update(functions)


lib = Library()


def text(value: Any) -> bytes:
    """A name or path for the C interface, which ends strings at a NUL."""
    given = os.fspath(value)
    encoded: bytes = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
    if b"\0" in encoded:
        raise ValueError(f"a NUL in {value!r}")
    return encoded


def path_text(value: Any) -> bytes:
    """A path of a file, as the functions of os take it."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded


def optional_text(value: Any) -> Any:
    return None if value is None else text(value)


def name_of(encoded: bytes) -> str:
    return encoded.decode("utf-8", "surrogateescape")
