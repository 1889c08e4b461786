/* The calls that the other files leave out: publishing, watches, fences, files, rings, the default pools, and the end
 * of the daemon. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include <gshm/gshm.h>

enum { FILE_BYTES = 10000 };

static const char* const kName = "abi-rest/object";

static gshm_object* make(gshm_client* client, uint32_t flags) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = kName;
    spec.size_bytes = FILE_BYTES;
    spec.flags = flags;
    gshm_object* object = NULL;
    CHECK_OK(gshm_create(client, &spec, &object));
    return object;
}

/* An unlinked file with known bytes. */
static int make_file(char* ret_path, size_t capacity) {
    const char* folder = getenv("TMPDIR");
    snprintf(ret_path, capacity, "%s/gshm-abi.XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(ret_path);
    CHECK(fd >= 0);
    char bytes[FILE_BYTES];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (char)(i * 7);
    CHECK(pwrite(fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
    return fd;
}

static int has_file_bytes(gshm_object* object) {
    char bytes[FILE_BYTES];
    if (gshm_copy_out(object, 0, bytes, sizeof bytes) != 0) return 0;
    for (size_t i = 0; i < sizeof bytes; ++i)
        if (bytes[i] != (char)(i * 7)) return 0;
    return 1;
}

static void publishing_and_watching(gshm_client* client) {
    gshm_watch* watch = NULL;
    CHECK_STATUS(gshm_watch_create(client, "abi-rest/", 1u << 30, &watch), -EINVAL);
    CHECK_OK(gshm_watch_create(client, "abi-rest/", GSHM_WATCH_EXISTING, &watch));
    if (!watch) return;
    CHECK(gshm_watch_fd(watch) >= 0 && gshm_watch_fd(NULL) == -1);
    gshm_event event = {.struct_size = sizeof event};
    CHECK_OK(gshm_watch_next(watch, &event, 10000));
    CHECK(event.event == GSHM_EVENT_READY);
    CHECK_STATUS(gshm_watch_next(watch, &event, 0), -ETIMEDOUT);

    gshm_object* first = make(client, GSHM_NO_MAP | GSHM_UNNAMED);
    CHECK_STATUS(gshm_publish(first, kName, 1u << 30), -EINVAL);
    CHECK_OK(gshm_publish(first, kName, 0));
    CHECK_OK(gshm_watch_next(watch, &event, 10000));
    CHECK(event.event == GSHM_EVENT_CREATED && event.id == gshm_id(first) && strcmp(event.name, kName) == 0);
    CHECK(event.state == GSHM_STATE_SEALED && event.size_bytes == FILE_BYTES && event.old_name[0] == '\0');
    gshm_object* second = make(client, GSHM_NO_MAP | GSHM_UNNAMED);
    CHECK_STATUS(gshm_publish(second, kName, 0), -EEXIST);
    CHECK_OK(gshm_publish(second, kName, GSHM_REPLACE));
    CHECK_OK(gshm_watch_next(watch, &event, 10000));
    CHECK(event.event == GSHM_EVENT_REPLACED && event.id == gshm_id(second) && event.replaced_id == gshm_id(first));
    gshm_close(first);
    gshm_close(second);
    event.struct_size = 1;
    CHECK_STATUS(gshm_watch_next(watch, &event, 0), -EINVAL);
    gshm_watch_destroy(watch);
    gshm_watch_destroy(NULL);
    CHECK_OK(gshm_unlink(client, kName));
}

static void fences(gshm_client* client) {
    gshm_object* object = make(client, 0);
    gshm_fence* writer = NULL;
    gshm_fence* reader = NULL;
    CHECK_STATUS(gshm_fence_open(object, 1u << 30, &writer), -EINVAL);
    CHECK_OK(gshm_fence_open(object, GSHM_WRITE, &writer));
    CHECK_OK(gshm_fence_open(object, 0, &reader));
    if (!writer || !reader) return;
    CHECK(gshm_fence_published(reader) == 0);
    CHECK_STATUS(gshm_fence_wait(reader, NULL, 1, 0, NULL), -ETIMEDOUT);
    uint64_t generation = 0;
    CHECK_OK(gshm_fence_publish(writer, NULL, &generation));
    CHECK(generation == 1 && gshm_fence_published(reader) == 1);
    generation = 0;
    CHECK_OK(gshm_fence_wait(reader, NULL, 0, -1, &generation));
    CHECK(generation == 1);
    CHECK_OK(gshm_sync(object));
    CHECK_OK(gshm_fence_check(reader, 1));
    CHECK_STATUS(gshm_fence_check(reader, 2), -EAGAIN);
    gshm_fence_close(reader);
    gshm_fence_close(writer);
    gshm_fence_close(NULL);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, kName));
}

static int count_calls(void* context, uint64_t done_bytes, uint64_t total_bytes) {
    ++*(int*)context;
    return done_bytes > total_bytes;
}

static void files(gshm_client* client) {
    char path[256];
    int fd = make_file(path, sizeof path);
    gshm_object* object = make(client, GSHM_NO_MAP);
    int calls = 0;
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.progress = count_calls;
    options.context = &calls;
    gshm_transfer_info info = {.struct_size = sizeof info};
    CHECK_OK(gshm_read_file(object, 0, fd, 0, FILE_BYTES, &options, &info));
    CHECK(calls > 0 && info.bytes == FILE_BYTES && info.path != 0 && has_file_bytes(object));
    CHECK_STATUS(gshm_read_file(object, 0, fd, 0, FILE_BYTES + 1, NULL, NULL), -EINVAL);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK_OK(gshm_write_file(object, 0, fd, 0, FILE_BYTES, NULL, &info));
    CHECK(info.bytes == FILE_BYTES && lseek(fd, 0, SEEK_END) == FILE_BYTES);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, kName));

    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = kName;
    options.flags = GSHM_TRANSFER_VERIFY;
    CHECK_OK(gshm_put_file(client, path, &spec, &options, &info));
    CHECK_STATUS(gshm_put_file(client, path, &spec, NULL, NULL), -EEXIST);
    spec.flags = GSHM_REPLACE;
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK_OK(gshm_put_fd(client, fd, &spec, NULL, &info));
    CHECK(info.bytes == FILE_BYTES);
    CHECK_OK(gshm_open(client, kName, GSHM_NO_MAP, &object));
    CHECK(has_file_bytes(object));
    gshm_close(object);
    char copy[272];
    snprintf(copy, sizeof copy, "%s.copy", path);
    CHECK_OK(gshm_get_file(client, kName, copy, &options, &info));
    CHECK(info.bytes == FILE_BYTES && access(copy, R_OK) == 0);
    options.struct_size = 1;
    CHECK_STATUS(gshm_get_file(client, kName, copy, &options, NULL), -EINVAL);
    CHECK_OK(gshm_unlink(client, kName));
    unlink(copy);
    unlink(path);
    close(fd);
}

static void rings(gshm_client* client) {
    char path[256];
    int fd = make_file(path, sizeof path);
    unlink(path);
    gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
    CHECK(options.entries == 128);
    options.entries = 5;
    gshm_ring* ring = NULL;
    CHECK_OK(gshm_ring_create(client, &options, &ring));
    if (!ring) return;
    CHECK(gshm_ring_entries(ring) == 8);
    uint32_t file = 99;
    CHECK_OK(gshm_ring_add_file(ring, fd, &file));
    gshm_object* object = make(client, GSHM_NO_MAP);
    gshm_object* own = NULL;
    CHECK_OK(gshm_allocate("host", FILE_BYTES, 0, &own));
    gshm_range range = {object, 0, FILE_BYTES};
    gshm_io io = {.struct_size = sizeof io, .operation = GSHM_IO_READ, .file = file, .ranges = &range};
    io.range_count = 1;
    io.user_data = 7;
    CHECK_OK(gshm_ring_prepare(ring, &io));
    range.object = own;
    io.user_data = 8;
    CHECK_OK(gshm_ring_prepare(ring, &io));
    io.flags = 1u << 30;
    CHECK_STATUS(gshm_ring_prepare(ring, &io), -EINVAL);
    CHECK_STATUS(gshm_ring_remove_file(ring, file), -EBUSY);
    CHECK(gshm_ring_submit(ring) == 2);
    gshm_completion completions[4];
    CHECK(gshm_ring_wait(ring, completions, 4, 2, -1) == 2);
    CHECK(completions[0].user_data + completions[1].user_data == 15);
    CHECK(completions[0].result == FILE_BYTES && completions[1].result == FILE_BYTES);
    CHECK(has_file_bytes(object) && has_file_bytes(own));
    gshm_ring_wake(ring);
    CHECK(gshm_ring_wait(ring, completions, 4, 0, 0) == 0);
    CHECK_OK(gshm_ring_remove_file(ring, file));
    gshm_close(own);
    gshm_close(object);
    gshm_ring_destroy(ring);
    gshm_ring_destroy(NULL);
    CHECK_OK(gshm_unlink(client, kName));
    close(fd);
}

static void default_pools(const char* dir) {
    CHECK(setenv("GSHM_DIR", dir, 1) == 0);
    char found[256];
    CHECK_OK(gshm_runtime_dir(found, sizeof found));
    CHECK(strcmp(found, dir) == 0);
    CHECK_STATUS(gshm_runtime_dir(found, 3), -ERANGE);
    CHECK(gshm_malloc(0, 0, NULL) == NULL);
    gshm_free(NULL, 0, 0, NULL);
    gshm_object* probe = NULL; /* only GPUs have default pools */
    if (gshm_allocate("cuda:0", 4096, 0, &probe) != 0) return;
    gshm_close(probe);
    void* memory = gshm_malloc(1000, 0, NULL);
    CHECK(memory != NULL);
    gshm_location location = {.struct_size = sizeof location};
    CHECK_OK(gshm_pool_locate(memory, &location));
    gshm_free(memory, 1000, 0, NULL);
}

void test_rest_with_daemon(const char* dir) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    gshm_client* client = NULL;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    publishing_and_watching(client);
    fences(client);
    files(client);
    rings(client);
    default_pools(dir);
    gshm_object* object = NULL;
    CHECK_STATUS(gshm_open_path(client, "/proc/version", 0, &object), -EINVAL);
    CHECK_STATUS(gshm_unmount(client, 1u << 30), -EINVAL);
    CHECK_STATUS(gshm_unmount(client, GSHM_LAZY), -EINVAL); /* nothing is mounted */
    CHECK_STATUS(gshm_shutdown(client, 1u << 30), -EINVAL);
    CHECK_OK(gshm_shutdown(client, 0));
    gshm_disconnect(client);
}
