/* Convention 4: structs of older and newer programs. Every struct with struct_size is in one of the two tables. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include <gshm/gshm.h>

enum { MORE = 16, LARGEST = 4096, ROOM = LARGEST + 64, GUARD = 0xA5 };

static const char* runtime_dir;
static gshm_client* client;
static gshm_object* object; /* with the name kName, on host */
static gshm_pool* pool;
static void* pool_memory;
static gshm_ring* ring;
static int file; /* as long as the object */
static const char* const kName = "abi-structs/object";
static char tensor_path[] = "/tmp/abi-structs-XXXXXX"; /* of a file of one tensor */
static gshm_model* model;

/* ---- input ---- */

static int connect_with(const void* options) {
    gshm_client* made = NULL;
    int status = gshm_connect(options, &made);
    gshm_disconnect(made);
    return status;
}

static int create_with(const void* spec) {
    gshm_object* made = NULL;
    int status = gshm_create(client, spec, &made);
    gshm_close(made);
    return status;
}

static int make_with(const void* spec) {
    int status = gshm_make(client, spec);
    if (status == 0) CHECK_OK(gshm_unlink(client, "abi-structs/directory"));
    return status;
}

static int change_with(const void* changes) {
    return gshm_change(client, kName, changes);
}

static int mirror_with(const void* options) {
    gshm_mirror* made = NULL;
    int status = gshm_mirror_create(object, options, &made);
    CHECK_OK(gshm_mirror_destroy(made));
    return status;
}

static int pool_with(const void* options) {
    gshm_pool* made = NULL;
    int status = gshm_pool_create(client, options, &made);
    gshm_pool_destroy(made);
    return status;
}

static int import_with(const void* info) {
    int fd = -1;
    CHECK_OK(gshm_export_fd(object, &fd, NULL));
    gshm_object* made = NULL;
    int status = gshm_import_fd("host", fd, info, 0, &made);
    gshm_close(made);
    close(fd);
    return status;
}

static int transfer_with(const void* options) {
    return gshm_write_file(object, 0, file, 0, 64, options, NULL);
}

static int mount_with(const void* options) {
    int status = gshm_mount(client, "/no/such/folder/of/abi-structs", options);
    return status == -EINVAL || status == -E2BIG ? status : 0; /* the struct was accepted */
}

static int limit_with(const void* limit) {
    return gshm_limit_set(client, limit);
}

static int ring_with(const void* options) {
    gshm_ring* made = NULL;
    int status = gshm_ring_create(client, options, &made);
    gshm_ring_destroy(made);
    return status;
}

static int tensor_with(const void* spec) {
    struct DLManagedTensor* made = NULL;
    int status = gshm_dlpack(object, spec, &made);
    if (made) test_delete_tensor(made);
    return status;
}

static int prepare_with(const void* io) {
    int status = gshm_ring_prepare(ring, io);
    if (status != 0) return status;
    gshm_completion completion;
    CHECK(gshm_ring_submit(ring) == 1);
    CHECK(gshm_ring_wait(ring, &completion, 1, 1, -1) == 1 && completion.result == 64);
    return 0;
}

static int layout_with(const void* info) {
    gshm_tensors* table = NULL;
    int status = gshm_tensors_layout(info, 1, NULL, 0, 0, &table);
    gshm_tensors_free(table);
    return status;
}

static int load_with(const void* spec) {
    gshm_model* loaded = NULL;
    int status = gshm_load(client, spec, &loaded);
    gshm_model_close(loaded);
    return status;
}

static int choose_with(const void* choice) {
    gshm_load_spec spec = GSHM_LOAD_SPEC_INIT;
    spec.path = tensor_path;
    spec.name = "abi-structs/model";
    spec.device = "host";
    spec.choices = choice;
    spec.choice_count = 1;
    return load_with(&spec);
}

/* Calls with `size` bytes of the struct, of which those after `known` are zero except for the last. */
static int call_with(int (*call)(const void*), const void* given, uint32_t known, uint32_t size, char last) {
    char* bytes = calloc(1, ROOM);
    memcpy(bytes, given, known < size ? known : size);
    if (size > known) bytes[size < ROOM ? size - 1 : ROOM - 1] = last;
    memcpy(bytes, &size, sizeof size < known ? sizeof size : known);
    int status = call(bytes);
    free(bytes);
    return status;
}

static void input(const char* name, int (*call)(const void*), const void* given, uint32_t first, uint32_t known) {
    CHECK(first <= known);
    CHECK_STATUS(call_with(call, given, known, 0, 0), -EINVAL);
    CHECK_STATUS(call_with(call, given, known, first - 1, 0), -EINVAL);
    CHECK_STATUS(call_with(call, given, known, first, 0), 0);
    CHECK_STATUS(call_with(call, given, known, known, 0), 0);
    CHECK_STATUS(call_with(call, given, known, known + MORE, 0), 0);
    CHECK_STATUS(call_with(call, given, known, known + MORE, 1), -E2BIG);
    CHECK_STATUS(call_with(call, given, known, LARGEST, 0), 0);
    CHECK_STATUS(call_with(call, given, known, LARGEST + 1, 0), -E2BIG);
    CHECK_STATUS(call_with(call, given, known, UINT32_MAX, 0), -E2BIG);
    if (checks_failed) fprintf(stderr, "the failures above are of %s\n", name);
}
#define INPUT(type, first, call, value) input(#type, call, value, first, sizeof(type))

static void inputs(void) {
    gshm_connect_options connect = GSHM_CONNECT_OPTIONS_INIT;
    connect.dir = runtime_dir;
    INPUT(gshm_connect_options, 16, connect_with, &connect);
    gshm_create_spec create = GSHM_CREATE_SPEC_INIT;
    create.name = "abi-structs/unnamed";
    create.size_bytes = 64;
    create.flags = GSHM_CREATE_UNNAMED | GSHM_CREATE_NO_MAP;
    INPUT(gshm_create_spec, 64, create_with, &create);
    gshm_make_spec make = GSHM_MAKE_SPEC_INIT;
    make.kind = GSHM_KIND_DIRECTORY;
    make.name = "abi-structs/directory";
    INPUT(gshm_make_spec, 48, make_with, &make);
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = GSHM_CHANGE_MODE;
    changes.mode = 0600;
    INPUT(gshm_changes, 20, change_with, &changes);
    gshm_mount_options mount = GSHM_MOUNT_OPTIONS_INIT;
    INPUT(gshm_mount_options, 24, mount_with, &mount);
    gshm_limit limit = GSHM_LIMIT_INIT;
    limit.kind = GSHM_LIMIT_GROUP;
    limit.id = 4243;
    limit.fields = GSHM_LIMIT_BYTES;
    INPUT(gshm_limit, 120, limit_with, &limit);
    gshm_mirror_options mirror = GSHM_MIRROR_OPTIONS_INIT;
    INPUT(gshm_mirror_options, 32, mirror_with, &mirror);
    gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
    INPUT(gshm_pool_options, 40, pool_with, &options);
    gshm_handle_info handle = GSHM_HANDLE_INFO_INIT;
    int fd = -1;
    CHECK_OK(gshm_export_fd(object, &fd, &handle));
    close(fd);
    INPUT(gshm_handle_info, 32, import_with, &handle);
    gshm_transfer_options transfer = GSHM_TRANSFER_OPTIONS_INIT;
    INPUT(gshm_transfer_options, 24, transfer_with, &transfer);
    gshm_ring_options ring_options = GSHM_RING_OPTIONS_INIT;
    INPUT(gshm_ring_options, 8, ring_with, &ring_options);
    const gshm_range range = {object, 0, 64};
    gshm_io io = GSHM_IO_INIT;
    io.operation = GSHM_IO_WRITE;
    io.ranges = &range;
    io.range_count = 1;
    CHECK_OK(gshm_ring_add_file(ring, file, &io.file));
    INPUT(gshm_io, 48, prepare_with, &io);
    gshm_tensor_spec tensor = GSHM_TENSOR_SPEC_INIT;
    INPUT(gshm_tensor_spec, 40, tensor_with, &tensor);
    gshm_tensor_info info = GSHM_TENSOR_INFO_INIT;
    info.name = "a";
    info.dtype = "F32";
    INPUT(gshm_tensor_info, 56, layout_with, &info);
    gshm_load_spec load = GSHM_LOAD_SPEC_INIT;
    load.path = tensor_path;
    load.name = "abi-structs/model";
    load.device = "host";
    INPUT(gshm_load_spec, 72, load_with, &load);
    gshm_tensor_choice choice = GSHM_TENSOR_CHOICE_INIT;
    choice.name = "a";
    INPUT(gshm_tensor_choice, 40, choose_with, &choice);
}

/* ---- output ---- */

static int daemon_into(void* ret) {
    return gshm_daemon(client, ret);
}
static int devices_into(void* ret) {
    size_t count = 0;
    return gshm_devices(client, ret, 1, &count);
}
static int local_devices_into(void* ret) {
    size_t count = 0;
    return gshm_local_devices(ret, 1, &count);
}
static int stat_into(void* ret) {
    return gshm_stat(client, kName, ret);
}
static int stat_object_into(void* ret) {
    return gshm_stat_object(object, ret);
}
static int wait_into(void* ret) {
    return gshm_wait(client, kName, GSHM_WAIT_EXISTS, 0, ret);
}
static int holders_into(void* ret) {
    size_t count = 0;
    return gshm_holders(client, kName, ret, 1, &count);
}
static int event_into(void* ret) {
    gshm_watch* watch = NULL;
    CHECK_OK(gshm_watch_create(client, "abi-structs/", GSHM_WATCH_EXISTING, &watch));
    int status = gshm_watch_next(watch, ret, 10000);
    gshm_watch_destroy(watch);
    return status;
}
static int mounts_into(void* ret) {
    size_t count = 0;
    int status = gshm_mounts(client, ret, 1, &count);
    uint32_t size = 0;
    memcpy(&size, ret, sizeof size);
    if (status == 0 && count == 0) memset((char*)ret + sizeof size, 0, size - sizeof size); /* no mount was written */
    return status;
}
static int reload_into(void* ret) {
    size_t count = 0;
    int status = gshm_reload(client, ret, 1, &count);
    uint32_t size = 0;
    memcpy(&size, ret, sizeof size);
    if (status == 0 && count == 0) memset((char*)ret + sizeof size, 0, size - sizeof size); /* nothing has changed */
    return status;
}
static int tiers_into(void* ret) {
    size_t count = 0;
    int status = gshm_tiers(client, ret, 1, &count);
    uint32_t size = 0;
    memcpy(&size, ret, sizeof size);
    if (status == 0 && count == 0) memset((char*)ret + sizeof size, 0, size - sizeof size); /* there is no tier */
    return status;
}
static int share_into(void* ret) {
    const gshm_acl_entry user = {GSHM_ACL_USER, 0, 1};
    return gshm_share(client, kName, &user, 1, 0, ret);
}
static int unshare_into(void* ret) {
    return gshm_unshare(client, kName, NULL, 0, 0, ret);
}
static int pool_stats_into(void* ret) {
    return gshm_pool_get_stats(pool, ret);
}
static int location_into(void* ret) {
    return gshm_pool_locate(pool_memory, ret);
}
static int export_into(void* ret) {
    int fd = -1;
    int status = gshm_export_fd(object, &fd, ret);
    CHECK((status == 0) == (fd >= 0));
    if (fd >= 0) close(fd);
    return status;
}
static int transfer_into(void* ret) {
    return gshm_write_file(object, 0, file, 0, 64, NULL, ret);
}

static int tensor_into(void* ret) {
    gshm_model_part part = GSHM_MODEL_PART_INIT;
    CHECK_OK(gshm_model_get_part(model, 0, &part));
    return gshm_tensors_get(part.tensors, 0, ret, 1, NULL);
}
static int part_into(void* ret) {
    return gshm_model_get_part(model, 0, ret);
}

static int is_all(const unsigned char* bytes, size_t begin, size_t end, unsigned char value) {
    while (begin < end && bytes[begin] == value) ++begin;
    return begin == end;
}

static void output(const char* name, int (*call)(void*), uint32_t first, uint32_t known) {
    const uint32_t sizes[] = {0, first - 1, first, known, known + MORE, LARGEST, LARGEST + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        unsigned char* bytes = malloc(ROOM);
        memset(bytes, GUARD, ROOM);
        const uint32_t size = sizes[i];
        memcpy(bytes, &size, sizeof size);
        const int expected = size < first ? -EINVAL : size > LARGEST ? -E2BIG : 0;
        CHECK_STATUS(call(bytes), expected);
        CHECK(memcmp(bytes, &size, sizeof size) == 0);
        const size_t written = expected == 0 ? size : sizeof size;
        CHECK(is_all(bytes, written, ROOM, GUARD)); /* nothing beyond the caller's struct, and nothing on failure */
        if (expected == 0 && size > known) CHECK(is_all(bytes, known, size, 0));
        free(bytes);
    }
    if (checks_failed) fprintf(stderr, "the failures above are of %s\n", name);
}
#define OUTPUT(type, first, call) output(#type, call, first, sizeof(type))

static void outputs(void) {
    OUTPUT(gshm_daemon_info, 336, daemon_into);
    OUTPUT(gshm_device_info, 344, devices_into);
    OUTPUT(gshm_device_info, 344, local_devices_into);
    OUTPUT(gshm_stat_info, 104, stat_into);
    OUTPUT(gshm_stat_info, 104, stat_object_into);
    OUTPUT(gshm_stat_info, 104, wait_into);
    OUTPUT(gshm_holder, 52, holders_into);
    OUTPUT(gshm_event, 80, event_into);
    OUTPUT(gshm_mount_info, 2312, mounts_into);
    OUTPUT(gshm_option_change, 584, reload_into);
    OUTPUT(gshm_tier_info, 1312, tiers_into);
    OUTPUT(gshm_share_info, 1048, share_into);
    OUTPUT(gshm_share_info, 1048, unshare_into);
    OUTPUT(gshm_pool_stats, 48, pool_stats_into);
    OUTPUT(gshm_location, 48, location_into);
    OUTPUT(gshm_handle_info, 32, export_into);
    OUTPUT(gshm_transfer_info, 24, transfer_into);
    OUTPUT(gshm_tensor_info, 56, tensor_into);
    OUTPUT(gshm_model_part, 56, part_into);
}

static void load_model(void) {
    static const char kJson[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   ";
    const uint64_t length = sizeof kJson - 1;
    int fd = mkstemp(tensor_path);
    CHECK(fd >= 0);
    CHECK(write(fd, &length, 8) == 8 && write(fd, kJson, length) == (ssize_t)length && write(fd, "1234", 4) == 4);
    close(fd);
    gshm_load_spec spec = GSHM_LOAD_SPEC_INIT;
    spec.path = tensor_path;
    spec.name = "abi-structs/model";
    spec.device = "host";
    CHECK_OK(gshm_load(client, &spec, &model));
}

/* The size in the first element is the distance of the elements. */
static void arrays(void) {
    struct {
        gshm_create_spec spec;
        char more[MORE];
    } specs[2];
    memset(specs, 0, sizeof specs);
    const gshm_create_spec unnamed = {.struct_size = sizeof specs[0],
                                      .name = "abi-structs/unnamed",
                                      .size_bytes = 64,
                                      .flags = GSHM_CREATE_UNNAMED | GSHM_CREATE_NO_MAP};
    specs[0].spec = specs[1].spec = unnamed;
    specs[1].spec.struct_size = 0; /* only the first counts */
    specs[1].spec.size_bytes = 65;
    gshm_object* made[2] = {NULL, NULL};
    int status[2];
    CHECK_OK(gshm_create_batch(client, &specs[0].spec, 2, made, status));
    CHECK(gshm_size(made[0]) == 64 && gshm_size(made[1]) == 65);
    gshm_close_batch(made, 2);
    specs[1].more[MORE - 1] = 1;
    CHECK_STATUS(gshm_create_batch(client, &specs[0].spec, 2, made, status), -E2BIG);

    struct {
        gshm_stat_info info;
        char more[MORE];
    } infos[2];
    memset(infos, GUARD, sizeof infos);
    infos[0].info.struct_size = sizeof infos[0];
    const char* const names[] = {kName, kName};
    CHECK_OK(gshm_stat_batch(client, names, 2, &infos[0].info, status));
    CHECK(infos[1].info.struct_size == sizeof infos[0] && infos[1].info.id == gshm_id(object));
    CHECK(is_all((const unsigned char*)infos[1].more, 0, MORE, 0));
}

void test_structs(const char* dir) {
    runtime_dir = dir;
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = kName;
    spec.size_bytes = 64;
    spec.device = "host";
    CHECK_OK(gshm_create(client, &spec, &object));
    CHECK_OK(gshm_pool_create(client, NULL, &pool));
    CHECK_OK(gshm_pool_allocate(pool, 64, 0, NULL, &pool_memory));
    CHECK_OK(gshm_ring_create(client, NULL, &ring));
    FILE* stream = tmpfile();
    file = fileno(stream);
    load_model();
    if (object && pool && ring && model) {
        inputs();
        outputs();
        arrays();
    }
    fclose(stream);
    unlink(tensor_path);
    gshm_model_close(model);
    CHECK_OK(gshm_unlink(client, "abi-structs/model"));
    gshm_ring_destroy(ring);
    gshm_pool_destroy(pool);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, kName));
    gshm_disconnect(client);
}
