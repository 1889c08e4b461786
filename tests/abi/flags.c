/* Convention 5: a flag that a call does not know is -EINVAL. Every call with flags is in the table. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include <gshm/gshm.h>

static gshm_client* client;
static gshm_object* object; /* with the name kName */
static gshm_object* unnamed;
static gshm_ring* ring;
static int file;
static const char* const kName = "abi-flags/object";

/* Set if a call returns something although it should not. */
static gshm_object* made[2];

static gshm_create_spec spec_with(uint32_t flags) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = "abi-flags/new";
    spec.size_bytes = 64;
    spec.flags = flags;
    return spec;
}

static gshm_transfer_options transfer_options(uint32_t flags) {
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.flags = flags;
    return options;
}

static int call_shutdown(uint32_t flags) {
    return gshm_shutdown(client, flags);
}
static int call_limits(uint32_t flags) {
    gshm_limit_list* list = NULL;
    int status = gshm_limits(client, NULL, flags, &list);
    gshm_limit_list_free(list);
    return status;
}
static int call_limit_set(uint32_t flags) {
    gshm_limit limit = GSHM_LIMIT_INIT;
    limit.kind = GSHM_LIMIT_GROUP;
    limit.id = 4243;
    limit.fields = flags == 0 ? GSHM_LIMIT_BYTES : flags;
    return gshm_limit_set(client, &limit);
}
static int call_unmount(uint32_t flags) {
    return gshm_unmount(client, flags);
}
static int call_unmount_at(uint32_t flags) {
    return gshm_unmount_at(client, "/", flags);
}
static int call_create(uint32_t flags) {
    const gshm_create_spec spec = spec_with(flags);
    return gshm_create(client, &spec, &made[0]);
}
static int call_create_batch(uint32_t flags) {
    const gshm_create_spec specs[2] = {spec_with(GSHM_CREATE_NO_MAP), spec_with(GSHM_CREATE_NO_MAP | flags)};
    int status[2];
    return gshm_create_batch(client, specs, 2, made, status);
}
static int call_open(uint32_t flags) {
    return gshm_open(client, kName, flags, &made[0]);
}
static int call_open_id(uint32_t flags) {
    return gshm_open_id(client, gshm_id(object), flags, &made[0]);
}
static int call_open_path(uint32_t flags) {
    return gshm_open_path(client, "/", flags, &made[0]);
}
static int call_open_batch(uint32_t flags) {
    int status = 0;
    return gshm_open_batch(client, &kName, 1, flags, made, &status);
}
static int call_open_ids(uint32_t flags) {
    const uint64_t id = gshm_id(object);
    int status = 0;
    return gshm_open_ids(client, &id, 1, flags, made, &status);
}
static int call_rename(uint32_t flags) {
    return gshm_rename(client, kName, "abi-flags/renamed", flags);
}
static int call_move(uint32_t flags) {
    return gshm_move(client, kName, gshm_device(object), flags);
}
static int call_demote(uint32_t flags) {
    return gshm_demote(client, kName, flags);
}
static int call_promote(uint32_t flags) {
    return gshm_promote(client, kName, flags);
}
static int call_set_ttl(uint32_t flags) {
    return gshm_set_ttl(client, kName, 0, flags);
}
static int call_publish(uint32_t flags) {
    return gshm_publish(unnamed, "abi-flags/published", flags);
}
static int call_list(uint32_t flags) {
    gshm_listing* listing = NULL;
    return gshm_list(client, "abi-flags", flags, &listing);
}
static int call_make(uint32_t flags) {
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_DIRECTORY;
    spec.name = "abi-flags/directory";
    spec.flags = flags;
    return gshm_make(client, &spec);
}
static int call_acl_get(uint32_t flags) {
    size_t count = 0;
    return gshm_acl_get(client, kName, flags, NULL, 0, &count);
}
static int call_acl_set(uint32_t flags) {
    return gshm_acl_set(client, kName, flags, NULL, 0);
}
static int call_share(uint32_t flags) {
    const gshm_acl_entry user = {GSHM_ACL_USER, 0, 1};
    return gshm_share(client, kName, &user, 1, flags, NULL);
}
static int call_unshare(uint32_t flags) {
    return gshm_unshare(client, kName, NULL, 0, flags, NULL);
}
static int call_change(uint32_t flags) {
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = flags;
    return gshm_change(client, kName, &changes);
}
static int call_watch(uint32_t flags) {
    gshm_watch* watch = NULL;
    return gshm_watch_create(client, "", flags, &watch);
}
static int call_mirror(uint32_t flags) {
    gshm_mirror_options options = GSHM_MIRROR_OPTIONS_INIT;
    options.flags |= flags;
    gshm_mirror* mirror = NULL;
    return gshm_mirror_create(object, &options, &mirror);
}
static int call_fence(uint32_t flags) {
    gshm_fence* fence = NULL;
    return gshm_fence_open(object, flags, &fence);
}
static int call_allocate(uint32_t flags) {
    return gshm_allocate("host", 64, flags, &made[0]);
}
static const gshm_handle_info kPlace = {sizeof kPlace, GSHM_HANDLE_POSIX_FD, 4096, 0, 64};
static const uint8_t kHandle[GSHM_FABRIC_HANDLE_BYTES] = {0};
static int call_import_fd(uint32_t flags) {
    return gshm_import_fd("host", file, &kPlace, flags, &made[0]);
}
static int call_import_dmabuf(uint32_t flags) {
    return gshm_import_dmabuf("host", file, &kPlace, flags, &made[0]);
}
static int call_import_fabric(uint32_t flags) {
    return gshm_import_fabric("host", kHandle, &kPlace, flags, &made[0]);
}
static int call_import_ipc(uint32_t flags) {
    return gshm_import_ipc("host", kHandle, &kPlace, flags, &made[0]);
}
static int call_read_file(uint32_t flags) {
    const gshm_transfer_options options = transfer_options(flags);
    return gshm_read_file(object, 0, file, 0, 0, &options, NULL);
}
static int call_write_file(uint32_t flags) {
    const gshm_transfer_options options = transfer_options(flags);
    return gshm_write_file(object, 0, file, 0, 0, &options, NULL);
}
static int call_put_spec(uint32_t flags) {
    gshm_create_spec spec = spec_with(flags);
    spec.size_bytes = 0;
    return gshm_put_fd(client, file, &spec, NULL, NULL);
}
static int call_put_file_spec(uint32_t flags) {
    gshm_create_spec spec = spec_with(flags);
    spec.size_bytes = 0;
    return gshm_put_file(client, "/proc/self/exe", &spec, NULL, NULL);
}
static int call_put_options(uint32_t flags) {
    const gshm_create_spec spec = spec_with(GSHM_CREATE_EMPTY);
    const gshm_transfer_options options = transfer_options(flags);
    return gshm_put_fd(client, file, &spec, &options, NULL);
}
static int call_get_file(uint32_t flags) {
    const gshm_transfer_options options = transfer_options(flags);
    return gshm_get_file(client, kName, "/nonexistent/file", &options, NULL);
}
static int call_pool_create(uint32_t flags) {
    gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
    options.flags = flags;
    gshm_pool* more = NULL;
    return gshm_pool_create(client, &options, &more);
}
static int call_ring_create(uint32_t flags) {
    gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
    options.flags = flags;
    gshm_ring* more = NULL;
    return gshm_ring_create(client, &options, &more);
}
static int call_ring_prepare(uint32_t flags) {
    const gshm_range range = {object, 0, 64};
    gshm_io io = GSHM_IO_INIT;
    io.operation = GSHM_IO_WRITE;
    io.ranges = &range;
    io.range_count = 1;
    io.flags = flags;
    return gshm_ring_prepare(ring, &io);
}

enum {
    CREATE = GSHM_CREATE_KEEP | GSHM_CREATE_COMPRESSIBLE | GSHM_CREATE_DEDICATED | GSHM_CREATE_UNNAMED |
             GSHM_CREATE_OWNER | GSHM_CREATE_EMPTY | GSHM_CREATE_NO_MAP | GSHM_CREATE_EVICTABLE |
             GSHM_CREATE_EPHEMERAL | GSHM_CREATE_TTL_UNUSED,
    OPEN = GSHM_OPEN_NO_MAP | GSHM_OPEN_WRITE | GSHM_OPEN_SEALED_ONLY | GSHM_OPEN_ANY_DEVICE,
};
static int call_layout(uint32_t flags) {
    gshm_tensors* table = NULL;
    return gshm_tensors_layout(NULL, 0, NULL, 0, flags, &table);
}
static int call_load(uint32_t flags) {
    gshm_load_spec spec = GSHM_LOAD_SPEC_INIT;
    spec.path = "/nonexistent/file";
    spec.flags = flags;
    gshm_model* model = NULL;
    return gshm_load(client, &spec, &model);
}

static const struct {
    const char* name;
    int (*call)(uint32_t flags);
    uint32_t known;
} calls[] = {
    {"shutdown", call_shutdown, GSHM_SHUTDOWN_KEEP},
    {"unmount", call_unmount, GSHM_UNMOUNT_LAZY},
    {"unmount_at", call_unmount_at, GSHM_UNMOUNT_LAZY},
    {"create", call_create, CREATE},
    {"create_batch", call_create_batch, CREATE},
    {"open", call_open, OPEN},
    {"open_id", call_open_id, OPEN},
    {"open_path", call_open_path, OPEN},
    {"open_batch", call_open_batch, OPEN},
    {"open_ids", call_open_ids, OPEN},
    {"rename", call_rename, GSHM_RENAME_REPLACE},
    {"move", call_move, GSHM_MOVE_KEEP_HOLDERS},
    {"demote", call_demote, 0},
    {"promote", call_promote, 0},
    {"set_ttl", call_set_ttl, GSHM_TTL_UNUSED},
    {"publish", call_publish, GSHM_PUBLISH_REPLACE},
    {"list", call_list, GSHM_LIST_RECURSIVE},
    {"make", call_make, GSHM_MAKE_KEEP | GSHM_MAKE_OWNER},
    {"change", call_change, GSHM_CHANGE_MODE | GSHM_CHANGE_OWNER | GSHM_CHANGE_KEEP},
    {"limits", call_limits, GSHM_LIMITS_USED | GSHM_LIMITS_OWN},
    {"limit_set", call_limit_set,
     GSHM_LIMIT_BYTES | GSHM_LIMIT_SOFT_BYTES | GSHM_LIMIT_OBJECTS | GSHM_LIMIT_SOFT_OBJECTS | GSHM_LIMIT_GRACE},
    {"acl_get", call_acl_get, GSHM_ACL_DEFAULT},
    {"acl_set", call_acl_set, GSHM_ACL_DEFAULT},
    {"share", call_share, GSHM_SHARE_PARENTS | GSHM_SHARE_WRITE | GSHM_SHARE_RECURSIVE},
    {"unshare", call_unshare, GSHM_SHARE_RECURSIVE},
    {"watch_create", call_watch, GSHM_WATCH_EXISTING},
    {"mirror_create", call_mirror, GSHM_MIRROR_LOAD | GSHM_MIRROR_WRITE},
    {"fence_open", call_fence, GSHM_FENCE_WRITE},
    {"allocate", call_allocate, GSHM_ALLOCATE_COMPRESSIBLE},
    {"import_fd", call_import_fd, GSHM_IMPORT_WRITE},
    {"import_dmabuf", call_import_dmabuf, GSHM_IMPORT_WRITE},
    {"import_fabric", call_import_fabric, GSHM_IMPORT_WRITE},
    {"import_ipc", call_import_ipc, GSHM_IMPORT_WRITE},
    {"read_file", call_read_file, 0},
    {"write_file", call_write_file, 0},
    {"put_fd", call_put_spec, CREATE | GSHM_PUT_REPLACE},
    {"put_file", call_put_file_spec, CREATE | GSHM_PUT_REPLACE},
    {"put_fd, options", call_put_options, GSHM_TRANSFER_VERIFY},
    {"get_file", call_get_file, GSHM_TRANSFER_VERIFY},
    {"pool_create", call_pool_create, GSHM_POOL_KEEP},
    {"ring_create", call_ring_create, GSHM_RING_SHARED},
    {"ring_prepare", call_ring_prepare, 0},
    {"tensors_layout", call_layout, GSHM_LAYOUT_FILE},
    {"load", call_load,
     GSHM_LOAD_NO_MAP | GSHM_LOAD_EXISTING | GSHM_LOAD_EVICTABLE | GSHM_LOAD_EPHEMERAL | GSHM_LOAD_TTL_UNUSED},
};

void test_flags(const char* dir) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    gshm_create_spec spec = spec_with(0);
    spec.name = kName;
    spec.device = "host";
    CHECK_OK(gshm_create(client, &spec, &object));
    spec.flags = GSHM_CREATE_UNNAMED;
    CHECK_OK(gshm_create(client, &spec, &unnamed));
    CHECK_OK(gshm_ring_create(NULL, NULL, &ring));
    FILE* stream = tmpfile();
    file = fileno(stream);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        for (int bit = 0; bit < 32; ++bit) {
            const uint32_t flag = UINT32_C(1) << bit;
            if (calls[i].known & flag) continue;
            const int status = calls[i].call(flag);
            if (status != -EINVAL) fprintf(stderr, "%s with bit %d:\n", calls[i].name, bit);
            CHECK_STATUS(status, -EINVAL);
        }
    }
    CHECK(made[0] == NULL && made[1] == NULL);
    CHECK_OK(gshm_ping(client)); /* the daemon still runs */
    fclose(stream);
    gshm_ring_destroy(ring);
    gshm_close(unnamed);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, kName));
    CHECK_STATUS(gshm_stat(client, "abi-flags", &(gshm_stat_info)GSHM_STAT_INFO_INIT), -ENOENT); /* nothing is left */
    gshm_disconnect(client);
}
