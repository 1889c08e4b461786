/* Calls without a daemon: devices, allocated memory, handles, and errors for invalid arguments. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include <gshm/gshm.h>

enum { MEMORY_BYTES = 1 << 20 };

void test_devices(void) {
    size_t count = 0;
    CHECK_OK(gshm_local_devices(NULL, 0, &count));
    CHECK(count >= 1);
    gshm_device_info* devices = calloc(count, sizeof *devices);
    for (size_t i = 0; i < count; ++i) devices[i].struct_size = sizeof *devices;
    size_t again = 0;
    CHECK_OK(gshm_local_devices(devices, count, &again));
    CHECK(again == count);
    int hosts = 0;
    for (size_t i = 0; i < count; ++i) {
        int is_host = strcmp(devices[i].name, "host") == 0;
        hosts += is_host;
        CHECK(is_host || strncmp(devices[i].name, "cuda:", 5) == 0);
        CHECK(is_host == (devices[i].uuid[0] == '\0'));
        CHECK(devices[i].failed || devices[i].granularity_bytes > 0);
        CHECK(devices[i].failed || (devices[i].handle_kinds & GSHM_HANDLE_POSIX_FD));
    }
    CHECK(hosts == 1);

    gshm_device_info one = {.struct_size = sizeof one};
    CHECK_OK(gshm_local_devices(&one, 1, &again)); /* less room than there are: as many as fit, and the count of all */
    CHECK(again == count);
    CHECK(strcmp(one.name, devices[0].name) == 0);

    CHECK_STATUS(gshm_local_devices(NULL, 1, &again), -EINVAL);
    CHECK_STATUS(gshm_local_devices(&one, 1, NULL), -EINVAL);
    one.struct_size = 0;
    CHECK_STATUS(gshm_local_devices(&one, 1, &again), -EINVAL);
    free(devices);
}

static void bad_memory(void) {
    gshm_object* object = NULL;
    CHECK_STATUS(gshm_allocate("host", MEMORY_BYTES, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_allocate(NULL, MEMORY_BYTES, 0, &object), -EINVAL);
    CHECK_STATUS(gshm_allocate("host", 0, 0, &object), -EINVAL);
    CHECK(gshm_allocate("host", UINT64_C(1) << 63, 0, &object) < 0);
    CHECK(gshm_allocate("host", UINT64_MAX, 0, &object) < 0);
    CHECK_STATUS(gshm_allocate("host", MEMORY_BYTES, GSHM_RECURSIVE, &object), -EINVAL);
    const char* const unknown[] = {"", "tpu:0", "host0", "cuda:", "cuda:x", "cuda:-1", "cuda:99", "cuda:0 "};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; ++i) {
        int status = gshm_allocate(unknown[i], MEMORY_BYTES, 0, &object);
        CHECK(status == -ENODEV || status == -EINVAL);
    }
    CHECK(object == NULL); /* not written on failure */
}

static void bad_imports(void) {
    gshm_object* object = NULL;
    gshm_handle_info info = {sizeof info, GSHM_HANDLE_POSIX_FD, MEMORY_BYTES, 0, MEMORY_BYTES};
    CHECK_STATUS(gshm_import_fd("host", 0, NULL, 0, &object), -EINVAL);
    CHECK_STATUS(gshm_import_fd("host", 0, &info, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_import_fd("host", -1, &info, 0, &object), -EBADF);
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    CHECK(gshm_import_fd("host", pipe_fds[0], &info, 0, &object) < 0); /* a descriptor, but of no memory */
    CHECK(fcntl(pipe_fds[0], F_GETFD) >= 0);                           /* and still ours */
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    uint8_t fabric[GSHM_FABRIC_HANDLE_BYTES] = {0};
    CHECK(gshm_import_fabric("host", fabric, &info, 0, &object) < 0);
    CHECK_STATUS(gshm_import_fabric("host", NULL, &info, 0, &object), -EINVAL);
    CHECK(gshm_import_dmabuf("host", -1, &info, 0, &object) < 0);
    CHECK_STATUS(gshm_import_ipc("host", fabric, &info, 0, &object), -EOPNOTSUPP);
    CHECK_STATUS(gshm_import_ipc("host", NULL, &info, 0, &object), -EINVAL);
    CHECK(object == NULL);
}

void test_bad_arguments(void) {
    gshm_disconnect(NULL);
    gshm_close(NULL);
    gshm_close_batch(NULL, 0);
    gshm_listing_free(NULL);

    gshm_client* client = NULL;
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    CHECK(options.timeout_ms == 2000 && options.dir == NULL);
    CHECK_STATUS(gshm_connect(&options, NULL), -EINVAL);
    options.struct_size = 0;
    CHECK_STATUS(gshm_connect(&options, &client), -EINVAL);
    CHECK(client == NULL);

    gshm_object* object = NULL;
    gshm_listing* listing = NULL;
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    gshm_stat_info info = {.struct_size = sizeof info};
    const char* name = "a";
    size_t count = 0;
    int status = 0;
    CHECK_STATUS(gshm_ping(NULL), -EINVAL);
    CHECK_STATUS(gshm_shutdown(NULL, 0), -EINVAL);
    CHECK_STATUS(gshm_daemon(NULL, NULL), -EINVAL);
    CHECK_STATUS(gshm_devices(NULL, NULL, 0, &count), -EINVAL);
    CHECK_STATUS(gshm_create(NULL, &spec, &object), -EINVAL);
    CHECK_STATUS(gshm_create_batch(NULL, &spec, 1, &object, &status), -EINVAL);
    CHECK_STATUS(gshm_open(NULL, name, 0, &object), -EINVAL);
    CHECK_STATUS(gshm_open_id(NULL, 1, 0, &object), -EINVAL);
    CHECK_STATUS(gshm_open_batch(NULL, &name, 1, 0, &object, &status), -EINVAL);
    CHECK_STATUS(gshm_seal(NULL), -EINVAL);
    CHECK_STATUS(gshm_seal_name(NULL, name), -EINVAL);
    CHECK_STATUS(gshm_unlink(NULL, name), -EINVAL);
    CHECK_STATUS(gshm_rename(NULL, name, "b", 0), -EINVAL);
    CHECK_STATUS(gshm_move(NULL, name, "host", 0), -EINVAL);
    CHECK_STATUS(gshm_stat(NULL, name, &info), -EINVAL);
    CHECK_STATUS(gshm_stat_batch(NULL, &name, 1, &info, &status), -EINVAL);
    CHECK_STATUS(gshm_stat_object(NULL, &info), -EINVAL);
    CHECK_STATUS(gshm_list(NULL, "", 0, &listing), -EINVAL);
    CHECK_STATUS(gshm_holders(NULL, name, NULL, 0, &count), -EINVAL);
    CHECK_STATUS(gshm_wait(NULL, name, GSHM_WAIT_EXISTS, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_set_attribute(NULL, name, "k", "v", 1), -EINVAL);
    CHECK_STATUS(gshm_get_attribute(NULL, name, "k", NULL, 0, &count), -EINVAL);
    CHECK_STATUS(gshm_remove_attribute(NULL, name, "k"), -EINVAL);
    CHECK_STATUS(gshm_list_attributes(NULL, name, NULL, 0, &count), -EINVAL);
    CHECK_STATUS(gshm_copy_in(NULL, 0, name, 1), -EINVAL);
    CHECK_STATUS(gshm_copy_out(NULL, 0, &status, 1), -EINVAL);
    CHECK_STATUS(gshm_fill(NULL, 0, 1, 0), -EINVAL);
    CHECK_STATUS(gshm_map_peer(NULL, "host"), -EINVAL);
    CHECK_STATUS(gshm_export_fd(NULL, &status, NULL), -EINVAL);
    CHECK_STATUS(gshm_export_dmabuf(NULL, &status, NULL), -EINVAL);
    uint8_t fabric[GSHM_FABRIC_HANDLE_BYTES];
    CHECK_STATUS(gshm_export_fabric(NULL, fabric, NULL), -EINVAL);
    CHECK_STATUS(gshm_export_ipc(NULL, fabric, NULL), -EINVAL);
    CHECK_STATUS(gshm_sync(NULL), -EINVAL);
    CHECK(object == NULL && listing == NULL);

    bad_memory();
    bad_imports();
}

/* Copies and fills of the memory, also at and beyond its end. */
static void copies(gshm_object* object) {
    unsigned char* bytes = malloc(MEMORY_BYTES);
    CHECK_OK(gshm_copy_out(object, 0, bytes, MEMORY_BYTES));
    size_t zeros = 0;
    while (zeros < MEMORY_BYTES && bytes[zeros] == 0) ++zeros;
    CHECK(zeros == MEMORY_BYTES);

    CHECK_OK(gshm_copy_in(object, MEMORY_BYTES - 5, "hello", 5));
    CHECK_OK(gshm_fill(object, 0, 16, 0xAB));
    CHECK_OK(gshm_copy_out(object, 0, bytes, MEMORY_BYTES));
    CHECK(bytes[0] == 0xAB && bytes[15] == 0xAB && bytes[16] == 0);
    CHECK(memcmp(bytes + MEMORY_BYTES - 5, "hello", 5) == 0);
    CHECK_OK(gshm_copy_in(object, MEMORY_BYTES, "", 0)); /* nothing, at the very end */

    CHECK_STATUS(gshm_copy_in(object, MEMORY_BYTES - 4, "hello", 5), -EINVAL);
    CHECK_STATUS(gshm_copy_out(object, MEMORY_BYTES + 1, bytes, 0), -EINVAL);
    CHECK_STATUS(gshm_copy_out(object, UINT64_MAX, bytes, 2), -EINVAL);
    CHECK_STATUS(gshm_fill(object, 1, UINT64_MAX, 0), -EINVAL);
    CHECK_STATUS(gshm_copy_in(object, 0, NULL, 1), -EINVAL);
    CHECK_STATUS(gshm_copy_out(object, 0, NULL, 1), -EINVAL);
    free(bytes);
}

/* The exported descriptor gives the same bytes again, also when the first handle is closed, which is done here. */
static void export_and_import(const char* device, gshm_object* object) {
    int fd = -1;
    gshm_handle_info info = {.struct_size = sizeof info};
    CHECK_STATUS(gshm_export_fd(object, NULL, &info), -EINVAL);
    CHECK_OK(gshm_export_fd(object, &fd, &info));
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    CHECK(info.kind == GSHM_HANDLE_POSIX_FD && info.size_bytes == MEMORY_BYTES);
    CHECK(info.extent_bytes >= info.offset + info.size_bytes);
    int second = -1;
    CHECK_OK(gshm_export_fd(object, &second, NULL));
    CHECK(second >= 0 && second != fd);
    close(second);

    gshm_handle_info wrong = info;
    wrong.offset = info.extent_bytes;
    gshm_object* other = NULL;
    CHECK_STATUS(gshm_import_fd(device, fd, &wrong, 0, &other), -EINVAL);
    wrong = info;
    wrong.extent_bytes = UINT64_C(1) << 62;
    CHECK(gshm_import_fd(device, fd, &wrong, 0, &other) < 0);
    wrong = info;
    wrong.struct_size = 4;
    CHECK_STATUS(gshm_import_fd(device, fd, &wrong, 0, &other), -EINVAL);
    CHECK(other == NULL);

    CHECK_OK(gshm_import_fd(device, fd, &info, GSHM_WRITE, &other));
    close(fd);
    if (!other) return;
    char text[5];
    CHECK_OK(gshm_copy_out(other, MEMORY_BYTES - 5, text, 5));
    CHECK(memcmp(text, "hello", 5) == 0);
    CHECK_OK(gshm_copy_in(other, 100, "there", 5));
    CHECK_OK(gshm_copy_out(object, 100, text, 5));
    CHECK(memcmp(text, "there", 5) == 0);
    CHECK(gshm_data(other) != NULL);
    gshm_close(object);
    CHECK_OK(gshm_copy_out(other, 100, text, 5));
    CHECK(memcmp(text, "there", 5) == 0);
    gshm_close(other);
}

/* Handles that a device need not have: they work where it says so, and are refused where it does not. */
static void other_handles(const gshm_device_info* device, gshm_object* object) {
    uint8_t fabric[GSHM_FABRIC_HANDLE_BYTES];
    gshm_handle_info info = {.struct_size = sizeof info};
    int has_fabric = !!(device->handle_kinds & GSHM_HANDLE_FABRIC);
    CHECK_STATUS(gshm_export_fabric(object, fabric, &info), has_fabric ? 0 : -EOPNOTSUPP);
    CHECK(!has_fabric || info.kind == GSHM_HANDLE_FABRIC);
    CHECK_STATUS(gshm_export_fabric(object, NULL, NULL), -EINVAL);

    int fd = -1;
    int has_dmabuf = !!(device->handle_kinds & GSHM_HANDLE_DMABUF);
    CHECK_STATUS(gshm_export_dmabuf(object, &fd, &info), has_dmabuf ? 0 : -EOPNOTSUPP);
    CHECK(has_dmabuf == (fd >= 0));
    if (has_dmabuf) {
        CHECK(info.kind == GSHM_HANDLE_DMABUF);
        close(fd);
    }
}

static void forked_child_is_refused(gshm_object* object) {
    pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        int refused = gshm_copy_out(object, 0, &byte, 1) == -ECHILD;
        gshm_close(object);
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0); /* the child was told, and could close its copy */
}

/* A handle for a part of existing memory; the same bytes, on host and on a GPU. */
static void wrapped(const char* device, gshm_object* object) {
    enum { AT = 1001, BYTES = 4099 };
    gshm_object* part = NULL;
    char* memory = gshm_data(object);
    CHECK_STATUS(gshm_wrap(memory, BYTES, NULL), -EINVAL);
    CHECK_STATUS(gshm_wrap(NULL, BYTES, &part), -EINVAL);
    CHECK_STATUS(gshm_wrap(memory, 0, &part), -EINVAL);
    CHECK_STATUS(gshm_wrap(memory, UINT64_C(1) << 40, &part), -EINVAL); /* more than is there */
    CHECK(part == NULL);
    CHECK_OK(gshm_wrap(memory + AT, BYTES, &part));
    if (!part) return;
    CHECK(gshm_data(part) == memory + AT && gshm_size(part) == BYTES && gshm_id(part) == 0);
    CHECK(strcmp(gshm_device(part), device) == 0);
    CHECK_OK(gshm_fill(part, 0, BYTES, 0xCD));
    CHECK_OK(gshm_copy_in(part, 1, "part", 4));
    CHECK_STATUS(gshm_copy_in(part, BYTES - 3, "part", 4), -EINVAL);
    unsigned char text[8];
    CHECK_OK(gshm_copy_out(object, AT - 1, text, 6));
    CHECK(text[0] == 0 && text[1] == 0xCD && memcmp(text + 2, "part", 4) == 0);
    CHECK_OK(gshm_copy_out(object, AT + BYTES - 1, text, 2));
    CHECK(text[0] == 0xCD && text[1] == 0);
    CHECK_OK(gshm_sync(part));
    CHECK_OK(gshm_sync(object));
    uint8_t handle[GSHM_IPC_HANDLE_BYTES];
    CHECK_STATUS(gshm_export_ipc(part, handle, NULL), -EOPNOTSUPP); /* gshm's own memory has none */
    CHECK_STATUS(gshm_export_ipc(object, handle, NULL), -EOPNOTSUPP);
    int fd = -1;
    CHECK_STATUS(gshm_export_fd(part, &fd, NULL), -EOPNOTSUPP);
    CHECK(gshm_seal(part) < 0);
    CHECK_OK(gshm_fill(part, 0, BYTES, 0));
    gshm_close(part);
    CHECK_OK(gshm_copy_out(object, AT, text, 1)); /* wrapped memory stays */
}

/* The memory itself on host, a copy on a GPU; both write back marked ranges. */
static void mirrored(const char* device, gshm_object* object) {
    enum { AT = 513, BYTES = 9000 };
    gshm_mirror* mirror = NULL;
    gshm_mirror_options options = GSHM_MIRROR_OPTIONS_INIT;
    CHECK(options.flags == GSHM_MIRROR_LOAD);
    CHECK_STATUS(gshm_mirror_create(NULL, NULL, &mirror), -EINVAL);
    CHECK_STATUS(gshm_mirror_create(object, NULL, NULL), -EINVAL);
    options.flags = 0;
    CHECK_STATUS(gshm_mirror_create(object, &options, &mirror), -EINVAL);
    options.flags = GSHM_MIRROR_LOAD | GSHM_MIRROR_WRITE;
    options.offset = MEMORY_BYTES;
    options.size_bytes = 1;
    CHECK_STATUS(gshm_mirror_create(object, &options, &mirror), -EINVAL);
    options.offset = AT;
    options.size_bytes = BYTES;
    options.struct_size = 1;
    CHECK_STATUS(gshm_mirror_create(object, &options, &mirror), -EINVAL);
    CHECK(mirror == NULL);
    options.struct_size = sizeof options;
    CHECK_OK(gshm_fill(object, AT, BYTES, 7));
    CHECK_OK(gshm_mirror_create(object, &options, &mirror));
    if (!mirror) return;
    unsigned char* data = gshm_mirror_data(mirror);
    CHECK((strcmp(device, "host") == 0) == (data == (unsigned char*)gshm_data(object) + AT));
    CHECK(gshm_mirror_size(mirror) == BYTES && data[0] == 7 && data[BYTES - 1] == 7);
    memcpy(data + 10, "mark", 4);
    CHECK_OK(gshm_mirror_mark(mirror, 10, 4));
    CHECK_STATUS(gshm_mirror_mark(mirror, BYTES - 1, 2), -EINVAL);
    CHECK_OK(gshm_mirror_flush(mirror));
    char text[4];
    CHECK_OK(gshm_copy_out(object, AT + 10, text, 4));
    CHECK(memcmp(text, "mark", 4) == 0);
    memcpy(data, "flow", 4);
    CHECK_OK(gshm_mirror_flush_range(mirror, 0, 4));
    CHECK_OK(gshm_copy_out(object, AT, text, 4));
    CHECK(memcmp(text, "flow", 4) == 0);
    CHECK_OK(gshm_fill(object, AT, BYTES, 0));
    CHECK_OK(gshm_mirror_load(mirror, 0, BYTES));
    CHECK(data[0] == 0 && data[10] == 0);
    CHECK_OK(gshm_mirror_mark(mirror, 0, BYTES));
    gshm_mirror_unmark(mirror);
    CHECK_OK(gshm_mirror_destroy(mirror));
    gshm_keep_pinned(0);
    gshm_keep_pinned(UINT64_C(1) << 30);
    CHECK(gshm_mirror_data(NULL) == NULL && gshm_mirror_size(NULL) == 0);
    CHECK_STATUS(gshm_mirror_flush(NULL), -EINVAL);
    CHECK_OK(gshm_mirror_destroy(NULL));
}

static void memory_of(const gshm_device_info* device) {
    gshm_object* object = NULL;
    CHECK_OK(gshm_allocate(device->name, MEMORY_BYTES, 0, &object));
    if (!object) return;
    CHECK(gshm_size(object) == MEMORY_BYTES);
    CHECK(gshm_id(object) == 0);
    CHECK(strcmp(gshm_device(object), device->name) == 0);
    CHECK(gshm_data(object) != NULL);
    wrapped(device->name, object);
    mirrored(device->name, object);
    copies(object);
    CHECK(gshm_seal(object) < 0); /* memory without a daemon cannot be sealed */
    CHECK(gshm_map_peer(object, "cuda:99") < 0);
    CHECK_STATUS(gshm_map_peer(object, NULL), -EINVAL);
    other_handles(device, object);
    forked_child_is_refused(object);
    export_and_import(device->name, object);
}

void test_memory_without_daemon(void) {
    gshm_device_info devices[16] = {{.struct_size = sizeof devices[0]}};
    size_t count = 0;
    CHECK_OK(gshm_local_devices(devices, 16, &count));
    for (size_t i = 0; i < count && i < 16; ++i)
        if (!devices[i].failed) memory_of(&devices[i]);
}

void test_no_daemon_there(void) {
    char dir[64] = "as it was";
    CHECK_STATUS(gshm_find_daemon("/proc", dir, sizeof dir), -EINVAL); /* no mount of ours */
    CHECK_STATUS(gshm_find_daemon("/nonexistent/gshm", dir, sizeof dir), -ENOENT);
    CHECK_STATUS(gshm_find_daemon(NULL, dir, sizeof dir), -EINVAL);
    CHECK(strcmp(dir, "as it was") == 0);
    gshm_client* client = NULL;
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = "/nonexistent/gshm";
    options.timeout_ms = 0;
    CHECK_STATUS(gshm_connect(&options, &client), -ECONNREFUSED);
    CHECK(client == NULL);
}
