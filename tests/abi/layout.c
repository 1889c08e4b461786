/* The binary layout and the values that programs have compiled in. A line here changes only with the library's major
 * version; a struct grows at its end, where this file then gets a new line. Numbers are those of 64-bit Linux. */
#include <stddef.h>

#include <gshm/gshm.h>

_Static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8, "gshm is for 64-bit systems");

#define LAYOUT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has changed its size")
#define LAYOUT(type, field, at, bytes)                                            \
    _Static_assert(offsetof(type, field) == (at), #type "." #field " has moved"); \
    _Static_assert(sizeof(((type*)0)->field) == (bytes), #type "." #field " has changed its size")
#define VALUE(name, value) _Static_assert((name) == (value), #name " has changed")

LAYOUT_SIZE(gshm_connect_options, 16);
LAYOUT(gshm_connect_options, struct_size, 0, 4);
LAYOUT(gshm_connect_options, timeout_ms, 4, 4);
LAYOUT(gshm_connect_options, dir, 8, 8);

LAYOUT_SIZE(gshm_daemon_info, 336);
LAYOUT(gshm_daemon_info, struct_size, 0, 4);
LAYOUT(gshm_daemon_info, protocol, 4, 4);
LAYOUT(gshm_daemon_info, pid, 8, 4);
LAYOUT(gshm_daemon_info, sessions, 12, 4);
LAYOUT(gshm_daemon_info, instance, 16, 8);
LAYOUT(gshm_daemon_info, objects, 24, 8);
LAYOUT(gshm_daemon_info, extents, 32, 8);
LAYOUT(gshm_daemon_info, version, 40, 32);
LAYOUT(gshm_daemon_info, mountpoint, 72, 256);
LAYOUT(gshm_daemon_info, keeper, 328, 4);

LAYOUT_SIZE(gshm_mount_options, 24);
LAYOUT(gshm_mount_options, struct_size, 0, 4);
LAYOUT(gshm_mount_options, flags, 4, 4);
LAYOUT(gshm_mount_options, subdirectory, 8, 8);
LAYOUT(gshm_mount_options, source, 16, 8);

LAYOUT_SIZE(gshm_mount_info, 2312);
LAYOUT(gshm_mount_info, struct_size, 0, 4);
LAYOUT(gshm_mount_info, flags, 4, 4);
LAYOUT(gshm_mount_info, path, 8, 1024);
LAYOUT(gshm_mount_info, subdirectory, 1032, 1024);
LAYOUT(gshm_mount_info, source, 2056, 256);
LAYOUT_SIZE(gshm_limit, 120);
LAYOUT(gshm_limit, struct_size, 0, 4);
LAYOUT(gshm_limit, kind, 4, 4);
LAYOUT(gshm_limit, id, 8, 4);
LAYOUT(gshm_limit, fields, 12, 4);
LAYOUT(gshm_limit, path, 16, 8);
LAYOUT(gshm_limit, device, 24, 8);
LAYOUT(gshm_limit, bytes, 32, 8);
LAYOUT(gshm_limit, soft_bytes, 40, 8);
LAYOUT(gshm_limit, objects, 48, 8);
LAYOUT(gshm_limit, soft_objects, 56, 8);
LAYOUT(gshm_limit, grace_s, 64, 8);
LAYOUT(gshm_limit, percent, 72, 4);
LAYOUT(gshm_limit, reserved, 76, 4);
LAYOUT(gshm_limit, used_bytes, 80, 8);
LAYOUT(gshm_limit, used_objects, 88, 8);
LAYOUT(gshm_limit, unlinked_bytes, 96, 8);
LAYOUT(gshm_limit, bytes_until_ns, 104, 8);
LAYOUT(gshm_limit, objects_until_ns, 112, 8);

LAYOUT_SIZE(gshm_option_change, 584);
LAYOUT(gshm_option_change, struct_size, 0, 4);
LAYOUT(gshm_option_change, flags, 4, 4);
LAYOUT(gshm_option_change, option, 8, 64);
LAYOUT(gshm_option_change, former, 72, 256);
LAYOUT(gshm_option_change, value, 328, 256);

LAYOUT_SIZE(gshm_device_info, 368);
LAYOUT(gshm_device_info, struct_size, 0, 4);
LAYOUT(gshm_device_info, handle_kinds, 4, 4);
LAYOUT(gshm_device_info, name, 8, 16);
LAYOUT(gshm_device_info, uuid, 24, 48);
LAYOUT(gshm_device_info, model, 72, 96);
LAYOUT(gshm_device_info, capacity_bytes, 168, 8);
LAYOUT(gshm_device_info, used_bytes, 176, 8);
LAYOUT(gshm_device_info, object_bytes, 184, 8);
LAYOUT(gshm_device_info, granularity_bytes, 192, 8);
LAYOUT(gshm_device_info, unlinked_bytes, 200, 8);
LAYOUT(gshm_device_info, compressible, 208, 4);
LAYOUT(gshm_device_info, failed, 212, 4);
LAYOUT(gshm_device_info, failure, 216, 128);
LAYOUT(gshm_device_info, evictable_bytes, 344, 8);
LAYOUT(gshm_device_info, evicted_bytes, 352, 8);
LAYOUT(gshm_device_info, evicted_objects, 360, 8);

LAYOUT_SIZE(gshm_tier_info, 1312);
LAYOUT(gshm_tier_info, struct_size, 0, 4);
LAYOUT(gshm_tier_info, flags, 4, 4);
LAYOUT(gshm_tier_info, name, 8, 1024);
LAYOUT(gshm_tier_info, capacity_bytes, 1032, 8);
LAYOUT(gshm_tier_info, used_bytes, 1040, 8);
LAYOUT(gshm_tier_info, objects, 1048, 8);
LAYOUT(gshm_tier_info, failure, 1056, 256);

LAYOUT_SIZE(gshm_tensor_spec, 40);
LAYOUT(gshm_tensor_spec, struct_size, 0, 4);
LAYOUT(gshm_tensor_spec, flags, 4, 4);
LAYOUT(gshm_tensor_spec, offset, 8, 8);
LAYOUT(gshm_tensor_spec, shape, 16, 8);
LAYOUT(gshm_tensor_spec, strides, 24, 8);
LAYOUT(gshm_tensor_spec, dimensions, 32, 4);
LAYOUT(gshm_tensor_spec, type_code, 36, 1);
LAYOUT(gshm_tensor_spec, type_bits, 37, 1);
LAYOUT(gshm_tensor_spec, type_lanes, 38, 2);
VALUE(GSHM_TENSOR_READ_ONLY, 1);
VALUE(GSHM_TENSOR_COPIED, 2);

LAYOUT_SIZE(gshm_tensor_info, 56);
LAYOUT(gshm_tensor_info, struct_size, 0, 4);
LAYOUT(gshm_tensor_info, dimensions, 4, 4);
LAYOUT(gshm_tensor_info, name, 8, 8);
LAYOUT(gshm_tensor_info, dtype, 16, 8);
LAYOUT(gshm_tensor_info, shape, 24, 8);
LAYOUT(gshm_tensor_info, offset, 32, 8);
LAYOUT(gshm_tensor_info, bytes, 40, 8);
LAYOUT(gshm_tensor_info, file, 48, 8);
VALUE(GSHM_LAYOUT_FILE, 1);
VALUE(GSHM_TENSORS_ALIGNMENT, 256);

LAYOUT_SIZE(gshm_tensor_choice, 40);
LAYOUT(gshm_tensor_choice, struct_size, 0, 4);
LAYOUT(gshm_tensor_choice, dimension, 4, 4);
LAYOUT(gshm_tensor_choice, name, 8, 8);
LAYOUT(gshm_tensor_choice, device, 16, 8);
LAYOUT(gshm_tensor_choice, begin, 24, 8);
LAYOUT(gshm_tensor_choice, end, 32, 8);

LAYOUT_SIZE(gshm_load_spec, 80);
LAYOUT(gshm_load_spec, struct_size, 0, 4);
LAYOUT(gshm_load_spec, flags, 4, 4);
LAYOUT(gshm_load_spec, path, 8, 8);
LAYOUT(gshm_load_spec, name, 16, 8);
LAYOUT(gshm_load_spec, device, 24, 8);
LAYOUT(gshm_load_spec, mode, 32, 4);
LAYOUT(gshm_load_spec, timeout_ms, 36, 4);
LAYOUT(gshm_load_spec, choices, 40, 8);
LAYOUT(gshm_load_spec, choice_count, 48, 8);
LAYOUT(gshm_load_spec, progress, 56, 8);
LAYOUT(gshm_load_spec, context, 64, 8);
LAYOUT(gshm_load_spec, ttl_ms, 72, 8);
VALUE(GSHM_LOAD_NO_MAP, 1 << 8);
VALUE(GSHM_LOAD_EXISTING, 1 << 14);
VALUE(GSHM_LOAD_EVICTABLE, 1 << 15);
VALUE(GSHM_LOAD_EPHEMERAL, 1 << 18);
VALUE(GSHM_LOAD_TTL_UNUSED, 1 << 19);

LAYOUT_SIZE(gshm_model_part, 56);
LAYOUT(gshm_model_part, struct_size, 0, 4);
LAYOUT(gshm_model_part, flags, 4, 4);
LAYOUT(gshm_model_part, object, 8, 8);
LAYOUT(gshm_model_part, tensors, 16, 8);
LAYOUT(gshm_model_part, name, 24, 8);
LAYOUT(gshm_model_part, file, 32, 8);
LAYOUT(gshm_model_part, device, 40, 8);
LAYOUT(gshm_model_part, read_bytes, 48, 8);
VALUE(GSHM_PART_SHARED, 1);

LAYOUT_SIZE(gshm_attribute, 24);
LAYOUT(gshm_attribute, name, 0, 8);
LAYOUT(gshm_attribute, value, 8, 8);
LAYOUT(gshm_attribute, value_bytes, 16, 8);

LAYOUT_SIZE(gshm_create_spec, 72);
LAYOUT(gshm_create_spec, struct_size, 0, 4);
LAYOUT(gshm_create_spec, mode, 4, 4);
LAYOUT(gshm_create_spec, name, 8, 8);
LAYOUT(gshm_create_spec, size_bytes, 16, 8);
LAYOUT(gshm_create_spec, device, 24, 8);
LAYOUT(gshm_create_spec, flags, 32, 4);
LAYOUT(gshm_create_spec, reserved, 36, 4);
LAYOUT(gshm_create_spec, attributes, 40, 8);
LAYOUT(gshm_create_spec, attribute_count, 48, 8);
LAYOUT(gshm_create_spec, uid, 56, 4);
LAYOUT(gshm_create_spec, gid, 60, 4);
LAYOUT(gshm_create_spec, ttl_ms, 64, 8);

LAYOUT_SIZE(gshm_make_spec, 48);
LAYOUT(gshm_make_spec, struct_size, 0, 4);
LAYOUT(gshm_make_spec, kind, 4, 4);
LAYOUT(gshm_make_spec, name, 8, 8);
LAYOUT(gshm_make_spec, target, 16, 8);
LAYOUT(gshm_make_spec, device, 24, 8);
LAYOUT(gshm_make_spec, mode, 32, 4);
LAYOUT(gshm_make_spec, flags, 36, 4);
LAYOUT(gshm_make_spec, uid, 40, 4);
LAYOUT(gshm_make_spec, gid, 44, 4);

LAYOUT_SIZE(gshm_mirror_options, 32);
LAYOUT(gshm_mirror_options, struct_size, 0, 4);
LAYOUT(gshm_mirror_options, flags, 4, 4);
LAYOUT(gshm_mirror_options, offset, 8, 8);
LAYOUT(gshm_mirror_options, size_bytes, 16, 8);
LAYOUT(gshm_mirror_options, stream, 24, 8);

LAYOUT_SIZE(gshm_pool_options, 48);
LAYOUT(gshm_pool_options, struct_size, 0, 4);
LAYOUT(gshm_pool_options, mode, 4, 4);
LAYOUT(gshm_pool_options, device, 8, 8);
LAYOUT(gshm_pool_options, name, 16, 8);
LAYOUT(gshm_pool_options, slab_bytes, 24, 8);
LAYOUT(gshm_pool_options, limit_bytes, 32, 8);
LAYOUT(gshm_pool_options, flags, 40, 4);
LAYOUT(gshm_pool_options, reserved, 44, 4);

LAYOUT_SIZE(gshm_pool_stats, 48);
LAYOUT(gshm_pool_stats, struct_size, 0, 4);
LAYOUT(gshm_pool_stats, slabs, 4, 4);
LAYOUT(gshm_pool_stats, reserved_bytes, 8, 8);
LAYOUT(gshm_pool_stats, used_bytes, 16, 8);
LAYOUT(gshm_pool_stats, peak_used_bytes, 24, 8);
LAYOUT(gshm_pool_stats, allocations, 32, 8);
LAYOUT(gshm_pool_stats, stream_waits, 40, 8);

LAYOUT_SIZE(gshm_location, 48);
LAYOUT(gshm_location, struct_size, 0, 4);
LAYOUT(gshm_location, reserved, 4, 4);
LAYOUT(gshm_location, id, 8, 8);
LAYOUT(gshm_location, offset, 16, 8);
LAYOUT(gshm_location, size_bytes, 24, 8);
LAYOUT(gshm_location, device, 32, 16);

LAYOUT_SIZE(gshm_changes, 20);
LAYOUT(gshm_changes, struct_size, 0, 4);
LAYOUT(gshm_changes, what, 4, 4);
LAYOUT(gshm_changes, mode, 8, 4);
LAYOUT(gshm_changes, uid, 12, 4);
LAYOUT(gshm_changes, gid, 16, 4);

LAYOUT_SIZE(gshm_stat_info, 136);
LAYOUT(gshm_stat_info, struct_size, 0, 4);
LAYOUT(gshm_stat_info, kind, 4, 4);
LAYOUT(gshm_stat_info, state, 8, 4);
LAYOUT(gshm_stat_info, mode, 12, 4);
LAYOUT(gshm_stat_info, uid, 16, 4);
LAYOUT(gshm_stat_info, gid, 20, 4);
LAYOUT(gshm_stat_info, id, 24, 8);
LAYOUT(gshm_stat_info, size_bytes, 32, 8);
LAYOUT(gshm_stat_info, allocation_bytes, 40, 8);
LAYOUT(gshm_stat_info, extent, 48, 8);
LAYOUT(gshm_stat_info, extent_offset, 56, 8);
LAYOUT(gshm_stat_info, created_ns, 64, 8);
LAYOUT(gshm_stat_info, modified_ns, 72, 8);
LAYOUT(gshm_stat_info, leases, 80, 4);
LAYOUT(gshm_stat_info, flags, 84, 4);
LAYOUT(gshm_stat_info, device, 88, 16);
LAYOUT(gshm_stat_info, tier, 104, 16);
LAYOUT(gshm_stat_info, ttl_ms, 120, 8);
LAYOUT(gshm_stat_info, expires_ns, 128, 8);

LAYOUT_SIZE(gshm_holder, 52);
LAYOUT(gshm_holder, struct_size, 0, 4);
LAYOUT(gshm_holder, pid, 4, 4);
LAYOUT(gshm_holder, uid, 8, 4);
LAYOUT(gshm_holder, leases, 12, 4);
LAYOUT(gshm_holder, writable, 16, 4);
LAYOUT(gshm_holder, command, 20, 32);

LAYOUT_SIZE(gshm_acl_entry, 8);
LAYOUT(gshm_acl_entry, tag, 0, 2);
LAYOUT(gshm_acl_entry, rights, 2, 2);
LAYOUT(gshm_acl_entry, id, 4, 4);
LAYOUT_SIZE(gshm_share_info, 1048);
LAYOUT(gshm_share_info, struct_size, 0, 4);
LAYOUT(gshm_share_info, changed, 8, 8);
LAYOUT(gshm_share_info, blocked_by, 16, 1024);
LAYOUT(gshm_share_info, blocked, 1040, 8);

LAYOUT_SIZE(gshm_handle_info, 32);
LAYOUT(gshm_handle_info, struct_size, 0, 4);
LAYOUT(gshm_handle_info, kind, 4, 4);
LAYOUT(gshm_handle_info, extent_bytes, 8, 8);
LAYOUT(gshm_handle_info, offset, 16, 8);
LAYOUT(gshm_handle_info, size_bytes, 24, 8);

VALUE(GSHM_HANDLE_POSIX_FD, 1);
VALUE(GSHM_HANDLE_FABRIC, 2);
VALUE(GSHM_HANDLE_DMABUF, 4);
VALUE(GSHM_HANDLE_IPC, 8);
VALUE(GSHM_FABRIC_HANDLE_BYTES, 64);
VALUE(GSHM_IPC_HANDLE_BYTES, 64);

VALUE(GSHM_KEEP, 1);
VALUE(GSHM_COMPRESSIBLE, 2);
VALUE(GSHM_DEDICATED, 4);
VALUE(GSHM_REPLACE, 8);
VALUE(GSHM_UNNAMED, 16);
VALUE(GSHM_EMPTY, 64);
VALUE(GSHM_OWNER, 32);
VALUE(GSHM_NO_MAP, 0x100);
VALUE(GSHM_WRITE, 0x200);
VALUE(GSHM_SEALED_ONLY, 0x400);
VALUE(GSHM_RECURSIVE, 0x800);
VALUE(GSHM_LAZY, 0x1000);
VALUE(GSHM_FORMER, 0x2000);
VALUE(GSHM_EVICTABLE, 0x8000);
VALUE(GSHM_ANY_DEVICE, 0x20000);
VALUE(GSHM_MOVE_KEEP_HOLDERS, 1);
VALUE(GSHM_CREATE_EPHEMERAL, 1 << 18);
VALUE(GSHM_CREATE_TTL_UNUSED, 1 << 19);
VALUE(GSHM_STAT_PINNED, 1 << 20);

VALUE(GSHM_KIND_OBJECT, 1);
VALUE(GSHM_KIND_DIRECTORY, 2);
VALUE(GSHM_KIND_SYMLINK, 3);
VALUE(GSHM_CHANGE_MODE, 1);
VALUE(GSHM_CHANGE_OWNER, 2);
VALUE(GSHM_CHANGE_KEEP, 4);
VALUE(GSHM_STATE_OPEN, 1);
VALUE(GSHM_STATE_SEALED, 2);
VALUE(GSHM_WAIT_EXISTS, 1);
VALUE(GSHM_WAIT_SEALED, 2);
VALUE(GSHM_WAIT_GONE, 3);
VALUE(GSHM_EVENT_CREATED, 1);
VALUE(GSHM_EVENT_SEALED, 2);
VALUE(GSHM_EVENT_DELETED, 3);
VALUE(GSHM_EVENT_RENAMED, 4);
VALUE(GSHM_EVENT_REPLACED, 5);
VALUE(GSHM_EVENT_EXISTING, 6);
VALUE(GSHM_EVENT_READY, 7);
VALUE(GSHM_EVENT_OVERFLOW, 8);
VALUE(GSHM_EVENT_EXPIRED, 9);
VALUE(GSHM_WATCH_EXISTING, 1);

LAYOUT_SIZE(gshm_event, 80);
LAYOUT(gshm_event, struct_size, 0, 4);
LAYOUT(gshm_event, event, 4, 4);
LAYOUT(gshm_event, kind, 8, 4);
LAYOUT(gshm_event, state, 12, 4);
LAYOUT(gshm_event, id, 16, 8);
LAYOUT(gshm_event, replaced_id, 24, 8);
LAYOUT(gshm_event, size_bytes, 32, 8);
LAYOUT(gshm_event, time_ns, 40, 8);
LAYOUT(gshm_event, device, 48, 16);
LAYOUT(gshm_event, name, 64, 8);
LAYOUT(gshm_event, old_name, 72, 8);

VALUE(GSHM_VERSION_MAJOR, 0);
_Static_assert(GSHM_VERSION_MINOR >= 1 && GSHM_VERSION_PATCH >= 0, "the version is a number");

LAYOUT_SIZE(gshm_transfer_info, 24);
LAYOUT(gshm_transfer_info, struct_size, 0, 4);
LAYOUT(gshm_transfer_info, path, 4, 4);
LAYOUT(gshm_transfer_info, bytes, 8, 8);
LAYOUT(gshm_transfer_info, duration_ns, 16, 8);

LAYOUT_SIZE(gshm_transfer_options, 24);
LAYOUT(gshm_transfer_options, struct_size, 0, 4);
LAYOUT(gshm_transfer_options, flags, 4, 4);
LAYOUT(gshm_transfer_options, progress, 8, 8);
LAYOUT(gshm_transfer_options, context, 16, 8);

LAYOUT_SIZE(gshm_ring_options, 16); /* 8 in 0.1 */
LAYOUT(gshm_ring_options, struct_size, 0, 4);
LAYOUT(gshm_ring_options, entries, 4, 4);
LAYOUT(gshm_ring_options, flags, 8, 4);
LAYOUT(gshm_ring_options, reserved, 12, 4);
VALUE(GSHM_RING_SHARED, 1);
VALUE(GSHM_LOG_DEBUG, 1);
VALUE(GSHM_LOG_INFO, 2);
VALUE(GSHM_LOG_WARNING, 3);
VALUE(GSHM_LOG_ERROR, 4);

LAYOUT_SIZE(gshm_range, 24);
LAYOUT(gshm_range, object, 0, 8);
LAYOUT(gshm_range, offset, 8, 8);
LAYOUT(gshm_range, bytes, 16, 8);

LAYOUT_SIZE(gshm_io, 48);
LAYOUT(gshm_io, struct_size, 0, 4);
LAYOUT(gshm_io, operation, 4, 4);
LAYOUT(gshm_io, file, 8, 4);
LAYOUT(gshm_io, flags, 12, 4);
LAYOUT(gshm_io, file_offset, 16, 8);
LAYOUT(gshm_io, ranges, 24, 8);
LAYOUT(gshm_io, range_count, 32, 8);
LAYOUT(gshm_io, user_data, 40, 8);

LAYOUT_SIZE(gshm_completion, 24);
LAYOUT(gshm_completion, user_data, 0, 8);
LAYOUT(gshm_completion, result, 8, 8);
LAYOUT(gshm_completion, path, 16, 4);

VALUE(GSHM_PATH_DIRECT, 1);
VALUE(GSHM_PATH_CACHED, 2);
VALUE(GSHM_PATH_STAGED, 4);
VALUE(GSHM_PATH_HOLE, 8);
VALUE(GSHM_PATH_CUFILE, 16);
VALUE(GSHM_PATH_THREADS, 32);
VALUE(GSHM_PATH_STREAM, 64);
VALUE(GSHM_TRANSFER_VERIFY, 1);
VALUE(GSHM_MIRROR_LOAD, 1);
VALUE(GSHM_MIRROR_WRITE, 2);
VALUE(GSHM_IO_READ, 1);
VALUE(GSHM_IO_WRITE, 2);
