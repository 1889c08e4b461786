/* Calls that need a daemon: named objects, batches, attributes, listings, waiting. Everything is made below one
 * directory of this process and removed again. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include <gshm/gshm.h>

static char root[32];

/* A name below root. The result is good for the next 15 calls too. */
static const char* in_root(const char* last) {
    static char names[16][64];
    static int next;
    char* name = names[next++ % 16];
    snprintf(name, sizeof names[0], "%s/%s", root, last);
    return name;
}

static gshm_create_spec spec_of(const char* last, uint64_t size_bytes, uint32_t flags) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = in_root(last);
    spec.size_bytes = size_bytes;
    spec.flags = flags;
    return spec;
}

static void daemon_and_devices(gshm_client* client) {
    CHECK_OK(gshm_ping(client));
    gshm_daemon_info info = {.struct_size = sizeof info};
    CHECK_OK(gshm_daemon(client, &info));
    CHECK(info.pid > 0 && info.sessions >= 1 && info.version[0] != '\0' && info.instance != 0);
    CHECK_STATUS(gshm_daemon(client, NULL), -EINVAL);
    info.struct_size = 0;
    CHECK_STATUS(gshm_daemon(client, &info), -EINVAL);

    size_t count = 0;
    CHECK_OK(gshm_devices(client, NULL, 0, &count));
    CHECK(count >= 1);
    gshm_device_info first = {.struct_size = sizeof first};
    CHECK_OK(gshm_devices(client, &first, 1, &count));
    CHECK(first.name[0] != '\0' && first.capacity_bytes > 0);
    CHECK_STATUS(gshm_devices(client, &first, 1, NULL), -EINVAL);
}

static void life_of_an_object(gshm_client* client) {
    gshm_attribute attributes[] = {{"dtype", "u8", 2}, {"shape", "\x00\x10", 2}};
    gshm_create_spec spec = spec_of("life", 4096, GSHM_NO_MAP);
    spec.mode = 0640;
    spec.attributes = attributes;
    spec.attribute_count = 2;
    gshm_object* object = NULL;
    CHECK_OK(gshm_create(client, &spec, &object));
    if (!object) return;
    CHECK(gshm_size(object) == 4096 && gshm_id(object) != 0 && gshm_data(object) == NULL);
    gshm_object* second = NULL;
    CHECK_STATUS(gshm_create(client, &spec, &second), -EEXIST);
    CHECK(second == NULL);

    CHECK_OK(gshm_fill(object, 0, 4096, 7));
    CHECK_OK(gshm_copy_in(object, 10, "hello", 5));
    CHECK_STATUS(gshm_copy_in(object, 4095, "hello", 5), -EINVAL);
    CHECK_STATUS(gshm_open(client, spec.name, GSHM_SEALED_ONLY | GSHM_NO_MAP, &second), -EBUSY);
    CHECK_STATUS(gshm_wait(client, spec.name, GSHM_WAIT_SEALED, 10, NULL), -ETIMEDOUT);
    CHECK_OK(gshm_wait(client, spec.name, GSHM_WAIT_EXISTS, 0, NULL));

    gshm_stat_info info = {.struct_size = sizeof info};
    CHECK_OK(gshm_stat(client, spec.name, &info));
    CHECK(info.kind == GSHM_KIND_OBJECT && info.state == GSHM_STATE_OPEN && (info.mode & 0777) == 0640);
    CHECK(info.size_bytes == 4096 && info.id == gshm_id(object) && info.uid == (uint32_t)geteuid());
    CHECK(info.leases == 1 && strcmp(info.device, gshm_device(object)) == 0);

    CHECK_OK(gshm_seal(object));
    CHECK_OK(gshm_wait(client, spec.name, GSHM_WAIT_SEALED, 1000, &info));
    CHECK(info.state == GSHM_STATE_SEALED);
    CHECK(gshm_copy_in(object, 0, "x", 1) == -EPERM);
    CHECK_STATUS(gshm_open(client, spec.name, GSHM_WRITE | GSHM_NO_MAP, &second), -EPERM);
    CHECK(second == NULL);
    CHECK_OK(gshm_open(client, spec.name, GSHM_SEALED_ONLY | GSHM_NO_MAP, &second));
    char text[5] = "";
    CHECK_OK(gshm_copy_out(second, 10, text, 5));
    CHECK(memcmp(text, "hello", 5) == 0);
    CHECK_OK(gshm_stat_object(second, &info));
    CHECK(info.leases == 2 && info.id == gshm_id(object));

    gshm_holder holder = {.struct_size = sizeof holder};
    size_t count = 0;
    CHECK_OK(gshm_holders(client, spec.name, &holder, 1, &count));
    CHECK(count == 1 && holder.pid == (int32_t)getpid() && holder.leases == 2);

    gshm_object* by_id = NULL;
    CHECK_OK(gshm_open_id(client, gshm_id(object), GSHM_NO_MAP, &by_id));
    gshm_close(by_id);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, spec.name));
    CHECK_STATUS(gshm_unlink(client, spec.name), -ENOENT);
    CHECK_STATUS(gshm_stat(client, spec.name, &info), -ENOENT);
    CHECK_OK(gshm_copy_out(second, 10, text, 5)); /* lives until its last lease */
    gshm_close(second);
}

static void besides_objects(gshm_client* client) {
    gshm_make_spec directory = GSHM_MAKE_SPEC_INIT;
    directory.kind = GSHM_KIND_DIRECTORY;
    directory.name = in_root("directory");
    directory.mode = 0750;
    CHECK_OK(gshm_make(client, &directory));
    CHECK_STATUS(gshm_make(client, &directory), -EEXIST);
    gshm_stat_info info = {.struct_size = sizeof info};
    CHECK_OK(gshm_stat(client, directory.name, &info));
    CHECK(info.kind == GSHM_KIND_DIRECTORY && info.mode == 0750 && info.flags == GSHM_KEEP && info.device[0] == '\0');

    gshm_make_spec link = GSHM_MAKE_SPEC_INIT;
    link.kind = GSHM_KIND_SYMLINK;
    link.name = in_root("link");
    CHECK_STATUS(gshm_make(client, &link), -EINVAL); /* without a target */
    link.target = "directory/first";
    CHECK_OK(gshm_make(client, &link));
    char target[64];
    size_t bytes = 0;
    CHECK_OK(gshm_read_link(client, link.name, target, sizeof target, &bytes));
    CHECK(bytes == strlen(link.target) && memcmp(target, link.target, bytes) == 0);
    CHECK_STATUS(gshm_read_link(client, link.name, target, 3, &bytes), -ERANGE);
    CHECK_STATUS(gshm_read_link(client, directory.name, target, sizeof target, &bytes), -EINVAL);
    link.kind = GSHM_KIND_SPECIAL;
    CHECK_STATUS(gshm_make(client, &link), -EINVAL);
    link.struct_size = 1;
    CHECK_STATUS(gshm_make(client, &link), -EINVAL);

    gshm_create_spec spec = spec_of("directory/first", 0, GSHM_NO_MAP | GSHM_KEEP);
    gshm_object* object = NULL;
    CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    spec.flags |= GSHM_EMPTY;
    CHECK_OK(gshm_create(client, &spec, &object));
    CHECK(gshm_size(object) == 0 && gshm_data(object) == NULL);
    gshm_close(object);
    CHECK_OK(gshm_open(client, in_root("link"), 0, &object));
    gshm_close(object);

    const char* second = in_root("second");
    CHECK_OK(gshm_link(client, spec.name, second));
    CHECK_STATUS(gshm_link(client, spec.name, second), -EEXIST);
    CHECK_STATUS(gshm_link(client, directory.name, in_root("third")), -EPERM);
    gshm_changes changes = {.struct_size = sizeof changes, .what = GSHM_CHANGE_MODE, .mode = 0604};
    CHECK_OK(gshm_change(client, second, &changes));
    CHECK_OK(gshm_stat(client, spec.name, &info));
    CHECK(info.mode == 0604);
    changes.what = 64;
    CHECK_STATUS(gshm_change(client, second, &changes), -EINVAL);
    CHECK_STATUS(gshm_change(client, second, NULL), -EINVAL);
    const char* names[] = {spec.name, second, in_root("link"), directory.name};
    for (size_t i = 0; i < 4; ++i) CHECK_OK(gshm_unlink(client, names[i]));
}

static void attributes_of(gshm_client* client) {
    gshm_create_spec spec = spec_of("attributes", 64, GSHM_NO_MAP);
    gshm_object* object = NULL;
    CHECK_OK(gshm_create(client, &spec, &object));
    CHECK_OK(gshm_set_attribute(client, spec.name, "one", "value", 5));
    CHECK_OK(gshm_set_attribute(client, spec.name, "two", NULL, 0));
    size_t bytes = 99;
    CHECK_OK(gshm_get_attribute(client, spec.name, "one", NULL, 0, &bytes));
    CHECK(bytes == 5);
    char value[8] = "";
    bytes = 0;
    CHECK_STATUS(gshm_get_attribute(client, spec.name, "one", value, 2, &bytes), -ERANGE);
    CHECK(bytes == 5);
    CHECK_OK(gshm_get_attribute(client, spec.name, "one", value, sizeof value, &bytes));
    CHECK(bytes == 5 && memcmp(value, "value", 5) == 0);
    CHECK_OK(gshm_get_attribute(client, spec.name, "two", value, sizeof value, &bytes));
    CHECK(bytes == 0);
    CHECK_STATUS(gshm_get_attribute(client, spec.name, "none", value, sizeof value, &bytes), -ENODATA);
    char names[16];
    CHECK_OK(gshm_list_attributes(client, spec.name, names, sizeof names, &bytes));
    CHECK(bytes == 8 && memcmp(names, "one\0two", 8) == 0);
    CHECK_OK(gshm_remove_attribute(client, spec.name, "one"));
    CHECK_STATUS(gshm_remove_attribute(client, spec.name, "one"), -ENODATA);
    CHECK_STATUS(gshm_set_attribute(client, spec.name, "", "v", 1), -EINVAL);
    CHECK_STATUS(gshm_set_attribute(client, spec.name, NULL, "v", 1), -EINVAL);
    CHECK_STATUS(gshm_set_attribute(client, spec.name, "k", NULL, 1), -EINVAL);
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, spec.name));
}

static void batches(gshm_client* client) {
    enum { COUNT = 4 };
    gshm_create_spec specs[COUNT] = {spec_of("b0", 100, GSHM_NO_MAP), spec_of("b1", 0, GSHM_NO_MAP),
                                     spec_of("b2", 100, GSHM_NO_MAP), spec_of("b3", 100, GSHM_NO_MAP)};
    specs[3].name = "../bad";
    gshm_object* objects[COUNT];
    int status[COUNT];
    CHECK_STATUS(gshm_create_batch(client, specs, COUNT, objects, status), -EINVAL);
    CHECK(status[0] == 0 && status[1] == -EINVAL && status[2] == 0 && status[3] == -EINVAL);
    CHECK(objects[0] && !objects[1] && objects[2] && !objects[3]);
    CHECK_OK(gshm_create_batch(client, NULL, 0, NULL, NULL));

    gshm_object* const made[] = {objects[0], objects[2]};
    int sealed[2];
    CHECK_OK(gshm_seal_batch(made, 2, sealed));
    CHECK(sealed[0] == 0 && sealed[1] == 0);

    const char* const names[] = {specs[0].name, in_root("none"), specs[2].name};
    gshm_object* opened[3];
    CHECK_STATUS(gshm_open_batch(client, names, 3, GSHM_NO_MAP, opened, status), -ENOENT);
    CHECK(status[0] == 0 && status[1] == -ENOENT && status[2] == 0);
    CHECK(opened[0] && !opened[1] && opened[2] && gshm_id(opened[2]) == gshm_id(objects[2]));
    gshm_stat_info infos[3] = {
        {.struct_size = sizeof infos[0]}, {.struct_size = sizeof infos[0]}, {.struct_size = sizeof infos[0]}};
    CHECK_STATUS(gshm_stat_batch(client, names, 3, infos, status), -ENOENT);
    CHECK(status[1] == -ENOENT && infos[2].id == gshm_id(objects[2]) && infos[0].leases == 2);

    gshm_close_batch(opened, 3); /* NULL among them is ignored */
    gshm_close_batch(made, 2);
    CHECK_OK(gshm_stat(client, names[0], &infos[0]));
    CHECK(infos[0].leases == 0);
    CHECK_OK(gshm_unlink(client, names[0]));
    CHECK_OK(gshm_unlink(client, names[2]));
}

static void names(gshm_client* client) {
    gshm_object* object = NULL;
    const char* const bad[] = {"", "/absolute", "a//b", "a/", "a/../b", ".", ".."};
    gshm_create_spec spec = spec_of("x", 64, GSHM_NO_MAP);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        spec.name = bad[i];
        CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    }
    spec.name = "\xff\xfe";
    CHECK_STATUS(gshm_create(client, &spec, &object), -EILSEQ);
    char long_part[300];
    memset(long_part, 'a', sizeof long_part);
    long_part[sizeof long_part - 1] = '\0';
    spec.name = long_part;
    CHECK_STATUS(gshm_create(client, &spec, &object), -ENAMETOOLONG);
    spec.name = NULL;
    CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    spec = spec_of("x", UINT64_C(1) << 63, GSHM_NO_MAP);
    CHECK(gshm_create(client, &spec, &object) < 0);
    spec = spec_of("x", UINT64_C(1) << 55, GSHM_NO_MAP);
    CHECK(gshm_create(client, &spec, &object) < 0);
    spec = spec_of("x", 0, GSHM_NO_MAP);
    CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    spec = spec_of("x", 64, GSHM_NO_MAP | 1u << 31);
    CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    spec = spec_of("x", 64, GSHM_NO_MAP);
    spec.device = "tpu:0";
    CHECK_STATUS(gshm_create(client, &spec, &object), -ENODEV);
    spec.struct_size = 8;
    CHECK_STATUS(gshm_create(client, &spec, &object), -EINVAL);
    CHECK(object == NULL);

    spec = spec_of("old", 64, GSHM_NO_MAP | GSHM_KEEP | GSHM_DEDICATED);
    CHECK_OK(gshm_create(client, &spec, &object));
    gshm_close(object);
    object = NULL;
    spec = spec_of("new", 64, GSHM_NO_MAP | GSHM_KEEP);
    CHECK_OK(gshm_create(client, &spec, &object));
    gshm_close(object);
    object = NULL;
    CHECK_STATUS(gshm_rename(client, in_root("new"), in_root("old"), 0), -EEXIST);
    CHECK_OK(gshm_rename(client, in_root("new"), in_root("old"), GSHM_REPLACE));
    CHECK_STATUS(gshm_open(client, in_root("new"), GSHM_NO_MAP, &object), -ENOENT);
    CHECK_OK(gshm_seal_name(client, in_root("old")));
    gshm_stat_info moved = {.struct_size = sizeof moved};
    CHECK_OK(gshm_stat(client, in_root("old"), &moved));
    CHECK_OK(gshm_move(client, in_root("old"), moved.device, 0));
    CHECK_STATUS(gshm_move(client, in_root("old"), NULL, 0), -EINVAL);
    CHECK_STATUS(gshm_move(client, in_root("old"), moved.device, 1u << 31), -EINVAL);
    CHECK_STATUS(gshm_move(client, in_root("old"), "nowhere", GSHM_MOVE_KEEP_HOLDERS), -ENODEV);

    gshm_object* held = NULL;
    gshm_listing* listing = NULL;
    gshm_holder holder = {.struct_size = sizeof holder};
    size_t holders = 0;
    CHECK_OK(gshm_open(client, in_root("old"), GSHM_NO_MAP, &held));
    spec = spec_of("old", 64, GSHM_NO_MAP | GSHM_UNNAMED);
    CHECK_OK(gshm_create(client, &spec, &object));
    CHECK_OK(gshm_replace(object, in_root("old")));
    CHECK_OK(gshm_list_unlinked(client, &listing));
    CHECK(gshm_listing_count(listing) == 1 && strcmp(gshm_listing_name(listing, 0), in_root("old")) == 0);
    CHECK_OK(gshm_listing_holders(listing, 0, &holder, 1, &holders));
    CHECK(holders == 1 && holder.leases == 1 && holder.writable == 0);
    CHECK(gshm_listing_holders(listing, 1, &holder, 1, &holders) < 0);
    gshm_listing_free(listing);
    gshm_close(held);
    gshm_close(object);
    object = NULL;

    listing = NULL;
    CHECK_OK(gshm_list(client, root, 0, &listing));
    CHECK(gshm_listing_count(listing) == 1);
    CHECK(gshm_listing_name(listing, 0) && strcmp(gshm_listing_name(listing, 0), "old") == 0);
    CHECK(gshm_listing_name(listing, 1) == NULL);
    gshm_stat_info info = {.struct_size = sizeof info};
    CHECK_OK(gshm_listing_stat(listing, 0, &info));
    CHECK(info.state == GSHM_STATE_SEALED && info.size_bytes == 64);
    CHECK(gshm_listing_stat(listing, 1, &info) < 0);
    gshm_listing_free(listing);
    listing = NULL;
    CHECK_OK(gshm_list(client, "", GSHM_RECURSIVE, &listing));
    CHECK(gshm_listing_count(listing) >= 1);
    gshm_listing_free(listing);
    listing = NULL;
    CHECK_STATUS(gshm_list(client, in_root("none"), 0, &listing), -ENOENT);
    CHECK(listing == NULL);

    CHECK_OK(gshm_stat(client, root, &info));
    CHECK(info.kind == GSHM_KIND_DIRECTORY && info.size_bytes == 1);
    CHECK_OK(gshm_unlink(client, in_root("old")));
    CHECK_STATUS(gshm_stat(client, root, &info), -ENOENT); /* the directory went with its last object */
}

/* On host a handle that is not open for writing is memory that cannot be written; here only that copies are refused. */
static void rights_of_a_handle(gshm_client* client) {
    gshm_create_spec spec = spec_of("rights", 4096, 0);
    spec.device = "host";
    gshm_object* writer = NULL;
    int status = gshm_create(client, &spec, &writer);
    if (status == -ENODEV) return; /* a daemon without host */
    CHECK_OK(status);
    gshm_object* reader = NULL;
    CHECK_OK(gshm_open(client, spec.name, 0, &reader));
    if (writer && reader) {
        memcpy(gshm_data(writer), "shared", 6);
        CHECK(memcmp(gshm_data(reader), "shared", 6) == 0);
        CHECK(gshm_copy_in(reader, 0, "x", 1) < 0);
        CHECK(gshm_fill(reader, 0, 1, 0) < 0);
        CHECK(gshm_seal(reader) < 0);
    }
    gshm_close(reader);
    gshm_close(writer);
    CHECK_OK(gshm_unlink(client, spec.name));
}

static void pools(gshm_client* client) {
    gshm_pool* pool = NULL;
    gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
    options.name = in_root("pool");
    options.slab_bytes = 4 << 20;
    options.limit_bytes = 8 << 20;
    CHECK_STATUS(gshm_pool_create(NULL, &options, &pool), -EINVAL);
    CHECK_STATUS(gshm_pool_create(client, &options, NULL), -EINVAL);
    options.struct_size = 4;
    CHECK_STATUS(gshm_pool_create(client, &options, &pool), -EINVAL);
    options.struct_size = sizeof options;
    options.device = "no such";
    CHECK_STATUS(gshm_pool_create(client, &options, &pool), -ENODEV);
    options.device = NULL;
    CHECK(pool == NULL);
    CHECK_OK(gshm_pool_create(client, &options, &pool));
    if (!pool) return;

    void* memory = NULL;
    CHECK_STATUS(gshm_pool_allocate(NULL, 1, 0, NULL, &memory), -EINVAL);
    CHECK_STATUS(gshm_pool_allocate(pool, 1, 0, NULL, NULL), -EINVAL);
    CHECK_STATUS(gshm_pool_allocate(pool, 1, 24, NULL, &memory), -EINVAL);
    CHECK_STATUS(gshm_pool_allocate(pool, 9 << 20, 0, NULL, &memory), -ENOMEM);
    CHECK(memory == NULL);
    CHECK_OK(gshm_pool_allocate(pool, 1000, 4096, NULL, &memory));
    CHECK(memory != NULL && (uintptr_t)memory % 4096 == 0);
    gshm_location location = {.struct_size = sizeof location};
    CHECK_OK(gshm_pool_locate((char*)memory + 10, &location));
    CHECK(location.id != 0 && location.offset % 512 == 10 && location.size_bytes == 990);
    CHECK_STATUS(gshm_pool_locate(&location, &location), -EINVAL);
    CHECK_STATUS(gshm_pool_locate(memory, NULL), -EINVAL);
    gshm_object* object = NULL;
    CHECK_OK(gshm_open_id(client, location.id, GSHM_NO_MAP, &object));
    CHECK(gshm_size(object) == 4 << 20);
    gshm_close(object);
    gshm_pool_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(gshm_pool_get_stats(pool, &stats));
    CHECK(stats.slabs == 1 && stats.allocations == 1 && stats.used_bytes == 1024 && stats.reserved_bytes == 4 << 20);
    CHECK_STATUS(gshm_pool_get_stats(pool, NULL), -EINVAL);
    CHECK_STATUS(gshm_pool_deallocate(pool, &stats, 0, NULL), -EINVAL);
    CHECK_STATUS(gshm_pool_deallocate(pool, memory, 1001, NULL), -EINVAL);
    CHECK_OK(gshm_pool_deallocate(pool, memory, 1000, NULL));
    CHECK_STATUS(gshm_pool_deallocate(pool, memory, 1000, NULL), -EINVAL);
    CHECK_OK(gshm_pool_deallocate(pool, NULL, 0, NULL));
    CHECK_OK(gshm_pool_allocate(pool, 100, 0, GSHM_NO_STREAM, &memory));
    CHECK_OK(gshm_pool_deallocate(pool, memory, 100, GSHM_NO_STREAM));
    CHECK_OK(gshm_pool_trim(pool, 0));
    CHECK_STATUS(gshm_pool_trim(NULL, 0), -EINVAL);
    CHECK_STATUS(gshm_pool_seal(NULL), -EINVAL);
    CHECK_OK(gshm_pool_seal(pool));
    CHECK_STATUS(gshm_malloc_pool(-1, NULL, &pool), -EINVAL);
    CHECK_STATUS(gshm_malloc_pool(0, NULL, NULL), -EINVAL);
    CHECK_OK(gshm_pool_allocate(pool, 100, 0, NULL, &memory));
    gshm_pool_destroy(pool);
    gshm_pool_destroy(NULL);
    CHECK_STATUS(gshm_pool_locate(memory, &location), -EINVAL);
}

static void forked_child_is_refused(gshm_client* client) {
    pid_t child = fork();
    if (child == 0) {
        int refused = gshm_ping(client) == -ECHILD;
        gshm_disconnect(client);
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK_OK(gshm_ping(client)); /* the parent's session is unchanged */
}

void test_with_daemon(const char* dir) {
    snprintf(root, sizeof root, "abi-%ld", (long)getpid());
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    gshm_client* client = NULL;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    daemon_and_devices(client);
    life_of_an_object(client);
    besides_objects(client);
    attributes_of(client);
    batches(client);
    names(client);
    rights_of_a_handle(client);
    pools(client);
    forked_child_is_refused(client);

    gshm_create_spec spec = spec_of("left", 64, GSHM_NO_MAP);
    gshm_object* left = NULL;
    CHECK_OK(gshm_create(client, &spec, &left));
    gshm_disconnect(client); /* not sealed, not kept: reclaimed with the session */
    gshm_close(left);        /* the handle may outlive the client */
    client = NULL;
    CHECK_OK(gshm_connect(&options, &client));
    gshm_stat_info info = {.struct_size = sizeof info};
    int status = 0;
    for (int i = 0; i < 200 && (status = gshm_stat(client, spec.name, &info)) == 0; ++i)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    CHECK_STATUS(status, -ENOENT);
    gshm_disconnect(client);
}
