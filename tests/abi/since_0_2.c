/* The calls that 0.2 added. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include <gshm/gshm.h>

enum { COUNT = 5 };
static const char* const kNames[COUNT] = {"abi-new/a", "abi-new/b", "abi-new/none", "abi-new/c", "../bad"};

static uint64_t make(gshm_client* client, const char* name, uint64_t size_bytes) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name;
    spec.size_bytes = size_bytes;
    spec.flags = GSHM_CREATE_NO_MAP | GSHM_CREATE_KEEP;
    gshm_object* object = NULL;
    CHECK_OK(gshm_create(client, &spec, &object));
    const uint64_t id = gshm_id(object);
    gshm_close(object);
    return id;
}

static void ids_and_unlinking(gshm_client* client) {
    const uint64_t ids[3] = {make(client, kNames[0], 10), UINT64_C(1) << 60, make(client, kNames[1], 20)};
    make(client, kNames[3], 30);
    gshm_object* objects[3];
    int status[COUNT];
    CHECK_STATUS(gshm_open_ids(client, ids, 3, GSHM_OPEN_NO_MAP, objects, status), -ENOENT);
    CHECK(status[0] == 0 && status[1] == -ENOENT && status[2] == 0);
    CHECK(gshm_size(objects[0]) == 10 && !objects[1] && gshm_size(objects[2]) == 20);
    gshm_close_batch(objects, 3);
    CHECK_OK(gshm_open_ids(client, NULL, 0, 0, NULL, NULL));
    CHECK_STATUS(gshm_open_ids(client, NULL, 1, 0, objects, status), -EINVAL);
    CHECK_STATUS(gshm_open_ids(NULL, ids, 3, 0, objects, status), -EINVAL);

    CHECK_STATUS(gshm_unlink_batch(client, kNames, COUNT, status), -ENOENT);
    CHECK(status[0] == 0 && status[1] == 0 && status[2] == -ENOENT && status[3] == 0 && status[4] == -EINVAL);
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    CHECK_STATUS(gshm_stat(client, "abi-new", &info), -ENOENT);
    CHECK_OK(gshm_unlink_batch(client, NULL, 0, NULL));
    CHECK_STATUS(gshm_unlink_batch(client, kNames, 1, NULL), -EINVAL);
    CHECK_STATUS(gshm_unlink_batch(NULL, kNames, 1, status), -EINVAL);
}

static int is_item(const gshm_attribute_list* list, size_t index, const char* name, const char* value) {
    const gshm_attribute* item = gshm_attribute_list_item(list, index);
    return item && strcmp(item->name, name) == 0 && item->value_bytes == strlen(value) &&
           strcmp(item->value, value) == 0;
}

static void attributes(gshm_client* client) {
    make(client, kNames[0], 10);
    char* large = calloc(1, 65537);
    const gshm_attribute set[4] = {{"shape", "3x4", 3}, {"", "x", 1}, {"dtype", "f16", 3}, {"large", large, 65537}};
    int status[4];
    CHECK_STATUS(gshm_set_attributes(client, kNames[0], set, 4, status), -EINVAL);
    CHECK(status[0] == 0 && status[1] == -EINVAL && status[2] == 0 && status[3] == -E2BIG);
    gshm_attribute_list* list = NULL;
    CHECK_OK(gshm_get_attributes(client, kNames[0], NULL, 0, &list));
    CHECK(gshm_attribute_list_count(list) == 2 && is_item(list, 0, "dtype", "f16") && is_item(list, 1, "shape", "3x4"));
    CHECK(gshm_attribute_list_item(list, 2) == NULL);
    gshm_attribute_list_free(list);
    const char* const wanted[3] = {"shape", "none", "dtype"};
    CHECK_OK(gshm_get_attributes(client, kNames[0], wanted, 3, &list));
    CHECK(gshm_attribute_list_count(list) == 2 && is_item(list, 0, "shape", "3x4") && is_item(list, 1, "dtype", "f16"));
    gshm_attribute_list_free(list);
    list = NULL;
    CHECK_STATUS(gshm_get_attributes(client, kNames[2], NULL, 0, &list), -ENOENT);
    CHECK_STATUS(gshm_get_attributes(client, kNames[2], wanted, 3, &list), -ENOENT);
    CHECK_STATUS(gshm_get_attributes(client, kNames[0], NULL, 1, &list), -EINVAL);
    CHECK_STATUS(gshm_get_attributes(client, kNames[0], NULL, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_set_attributes(client, kNames[0], set, 1, NULL), -EINVAL);
    CHECK_STATUS(gshm_set_attributes(client, kNames[2], set, 1, status), -ENOENT);
    CHECK(list == NULL && gshm_attribute_list_count(NULL) == 0 && gshm_attribute_list_item(NULL, 0) == NULL);
    gshm_attribute_list_free(NULL);
    /* More than one message holds, each way. */
    gshm_attribute many[12];
    char names[12][8];
    int many_status[12];
    for (int i = 0; i < 12; ++i) {
        snprintf(names[i], sizeof names[i], "k%02d", i);
        many[i] = (gshm_attribute){names[i], large, 65536};
    }
    CHECK_OK(gshm_set_attributes(client, kNames[0], many, 12, many_status));
    CHECK_OK(gshm_get_attributes(client, kNames[0], NULL, 0, &list));
    CHECK(gshm_attribute_list_count(list) == 14);
    const gshm_attribute* last = gshm_attribute_list_item(list, 12);
    CHECK(last && strcmp(last->name, "k11") == 0 && last->value_bytes == 65536);
    gshm_attribute_list_free(list);
    free(large);
    CHECK_OK(gshm_unlink(client, kNames[0]));
}

/* An object without a name gets one, unless the name exists. */
static void naming(gshm_client* client) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = kNames[0];
    spec.size_bytes = 10;
    spec.flags = GSHM_CREATE_NO_MAP | GSHM_CREATE_UNNAMED;
    gshm_object* object = NULL;
    CHECK_OK(gshm_create(client, &spec, &object));
    const uint64_t other = make(client, kNames[0], 10);
    CHECK_STATUS(gshm_publish(object, kNames[0], 0), -EEXIST);
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    CHECK_OK(gshm_stat(client, kNames[0], &info));
    CHECK(info.id == other);
    CHECK_OK(gshm_copy_in(object, 0, "open", 4)); /* not sealed by the refusal */
    CHECK_OK(gshm_publish(object, kNames[1], 0));
    CHECK_OK(gshm_stat(client, kNames[1], &info));
    CHECK(info.id == gshm_id(object) && info.state == GSHM_STATE_SEALED);
    gshm_close(object);
    int status[2];
    CHECK_OK(gshm_unlink_batch(client, kNames, 2, status));
}

struct heard {
    int count;
    int level;
    char message[200];
};

static void hear(void* context, int level, const char* message) {
    struct heard* heard = context;
    ++heard->count;
    heard->level = level;
    snprintf(heard->message, sizeof heard->message, "%s", message);
}

static void logging(void) {
    struct heard heard = {0, 0, ""};
    CHECK_STATUS(gshm_set_log(hear, &heard, 0), -EINVAL);
    CHECK_STATUS(gshm_set_log(hear, &heard, 5), -EINVAL);
    CHECK_OK(gshm_set_log(hear, &heard, GSHM_LOG_WARNING));
    gshm_free(&heard, 1, 0, NULL); /* not from a pool: the call has no status, so it is logged */
    CHECK(heard.count == 1 && heard.level == GSHM_LOG_ERROR && strstr(heard.message, "pool") != NULL);
    CHECK_OK(gshm_set_log(NULL, NULL, GSHM_LOG_INFO));
}

static void shared_ring(gshm_client* client) {
    gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
    options.flags = GSHM_RING_SHARED;
    gshm_ring* ring = NULL;
    CHECK_OK(gshm_ring_create(client, &options, &ring));
    if (!ring) return;
    FILE* stream = tmpfile();
    gshm_object* object = NULL;
    CHECK_OK(gshm_allocate("host", 64, 0, &object));
    const gshm_range range = {object, 0, 64};
    gshm_io io = GSHM_IO_INIT;
    io.operation = GSHM_IO_WRITE;
    io.ranges = &range;
    io.range_count = 1;
    CHECK_OK(gshm_ring_add_file(ring, fileno(stream), &io.file));
    CHECK_OK(gshm_ring_prepare(ring, &io));
    CHECK(gshm_ring_submit(ring) == 1);
    gshm_completion completions[2];
    CHECK(gshm_ring_wait(ring, completions, 1, 2, 0) == -EINVAL);
    CHECK(gshm_ring_wait(ring, completions, 2, 2, -1) == 1); /* only one is under way */
    CHECK(completions[0].result == 64);
    CHECK(gshm_ring_wait(ring, completions, 2, 1, -1) == 0);
    CHECK_OK(gshm_ring_remove_file(ring, io.file));
    gshm_ring_destroy(ring);
    gshm_close(object);
    fclose(stream);
}

static void reload(gshm_client* client) {
    size_t count = 7;
    CHECK_OK(gshm_reload(client, NULL, 0, &count));
    CHECK(count == 0);
    CHECK_STATUS(gshm_reload(client, NULL, 1, &count), -EINVAL);
    CHECK_STATUS(gshm_reload(client, NULL, 0, NULL), -EINVAL);
}

static void limits(gshm_client* client) {
    gshm_limit limit = GSHM_LIMIT_INIT;
    limit.kind = GSHM_LIMIT_GROUP;
    limit.id = 4242;
    CHECK_STATUS(gshm_limit_set(client, &limit), -EINVAL); /* nothing to change */
    limit.fields = GSHM_LIMIT_BYTES | GSHM_LIMIT_OBJECTS;
    limit.bytes = 1 << 20;
    limit.objects = 7;
    CHECK_OK(gshm_limit_set(client, &limit));
    gshm_limit which = GSHM_LIMIT_INIT;
    which.kind = GSHM_LIMIT_GROUP;
    which.id = 4242;
    gshm_limit_list* list = NULL;
    CHECK_OK(gshm_limits(client, &which, GSHM_LIMITS_ID, &list));
    CHECK(gshm_limit_list_count(list) == 1);
    const gshm_limit* item = gshm_limit_list_item(list, 0);
    CHECK(item && item->id == 4242 && item->bytes == 1 << 20 && item->objects == 7 && item->soft_bytes == 0);
    CHECK(item && item->device == NULL && item->path == NULL && item->used_bytes == 0);
    CHECK(gshm_limit_list_item(list, 1) == NULL);
    gshm_limit_list_free(list);
    limit.bytes = limit.objects = 0;
    CHECK_OK(gshm_limit_set(client, &limit));
    CHECK_OK(gshm_limits(client, NULL, 0, &list));
    CHECK(gshm_limit_list_count(list) == 0);
    gshm_limit_list_free(list);
    limit.kind = 9;
    CHECK_STATUS(gshm_limit_set(client, &limit), -EINVAL);
    limit.kind = GSHM_LIMIT_DIRECTORY;
    CHECK_STATUS(gshm_limit_set(client, &limit), -EINVAL); /* which? */
    limit.path = "abi-none/there";
    CHECK_STATUS(gshm_limit_set(client, &limit), -ENOENT);
    limit.kind = GSHM_LIMIT_USER;
    limit.fields = 1u << 31;
    CHECK_STATUS(gshm_limit_set(client, &limit), -EINVAL);
    limit.fields = GSHM_LIMIT_BYTES;
    limit.device = "cuda:77";
    CHECK_STATUS(gshm_limit_set(client, &limit), -ENODEV);
    CHECK_STATUS(gshm_limit_set(client, NULL), -EINVAL);
    CHECK_STATUS(gshm_limits(client, NULL, 0, NULL), -EINVAL);
    CHECK(gshm_limit_list_count(NULL) == 0 && gshm_limit_list_item(NULL, 0) == NULL);
    gshm_limit_list_free(NULL);
}

/* The daemon of this test has no mount; tests/mount has those with one. */
static void mounts(gshm_client* client) {
    size_t count = 7;
    CHECK_OK(gshm_mounts(client, NULL, 0, &count));
    CHECK(count == 0);
    CHECK_STATUS(gshm_mounts(client, NULL, 1, &count), -EINVAL);
    CHECK_STATUS(gshm_mounts(client, NULL, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_mount(client, "relative", NULL), -EINVAL);
    CHECK_STATUS(gshm_mount(client, NULL, NULL), -EINVAL);
    gshm_mount_options options = GSHM_MOUNT_OPTIONS_INIT;
    options.flags = 1u << 31;
    CHECK_STATUS(gshm_mount(client, "/", &options), -EINVAL);
    options.flags = GSHM_MOUNT_READ_ONLY;
    options.subdirectory = "../up";
    CHECK_STATUS(gshm_mount(client, "/", &options), -EINVAL);
    CHECK_STATUS(gshm_mount(client, "/nowhere/at/all", NULL), -ENOENT);
    CHECK_STATUS(gshm_unmount_at(client, "/", 0), -EINVAL);
    CHECK_STATUS(gshm_unmount_at(client, "", 0), -EINVAL);
}

void test_since_0_2(const char* dir) {
    logging();
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    gshm_client* client = NULL;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    char found[256] = "as it was";
    CHECK_STATUS(gshm_client_dir(client, found, strlen(dir)), -ERANGE);
    CHECK(strcmp(found, "as it was") == 0);
    CHECK_OK(gshm_client_dir(client, found, sizeof found));
    CHECK(strcmp(found, dir) == 0);
    CHECK_STATUS(gshm_client_dir(client, NULL, 0), -EINVAL);
    CHECK_STATUS(gshm_client_dir(NULL, found, sizeof found), -EINVAL);
    ids_and_unlinking(client);
    attributes(client);
    naming(client);
    shared_ring(client);
    mounts(client);
    reload(client);
    limits(client);
    gshm_disconnect(client);
}
