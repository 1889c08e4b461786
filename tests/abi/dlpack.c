/* Tensors of DLPack, as a consumer sees them: its own declaration of the structs, deleters in other threads, after the close
 * of the object and of the client, and in a forked child. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include <gshm/gshm.h>

typedef struct {
    void* data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
} tensor;
struct DLManagedTensor {
    tensor dl_tensor;
    void* manager_ctx;
    void (*deleter)(struct DLManagedTensor*);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void* manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned*);
    uint64_t flags;
    tensor dl_tensor;
};

enum { BYTES = 96, CPU = 1, CUDA = 2, READ_ONLY = 1, COPIED = 2, FLOAT = 2 };
static const char* const kName = "abi-dlpack/object";
static const int64_t kShape[3] = {2, 3, 4};

static gshm_client* client;
static gshm_object* object;

void test_delete_tensor(struct DLManagedTensor* managed) {
    managed->deleter(managed);
}

static size_t holders(void) {
    size_t count = 99;
    CHECK_OK(gshm_holders(client, kName, NULL, 0, &count));
    return count;
}

static gshm_tensor_spec floats(void) {
    gshm_tensor_spec spec = GSHM_TENSOR_SPEC_INIT;
    spec.shape = kShape;
    spec.dimensions = 3;
    spec.type_code = FLOAT;
    spec.type_bits = 32;
    return spec;
}

static void check_tensor(const tensor* seen) {
    int32_t type = 0, id = -1;
    CHECK_OK(gshm_dlpack_device(object, &type, &id));
    CHECK(seen->device.type == type && seen->device.id == id);
    CHECK(type == (strcmp(gshm_device(object), "host") == 0 ? CPU : CUDA) && id == 0);
    CHECK(seen->data == gshm_data(object) && seen->byte_offset == 0);
    CHECK(seen->ndim == 3 && memcmp(seen->shape, kShape, sizeof kShape) == 0);
    CHECK(seen->strides[0] == 12 && seen->strides[1] == 4 && seen->strides[2] == 1);
    CHECK(seen->dtype.code == FLOAT && seen->dtype.bits == 32 && seen->dtype.lanes == 1);
}

static void shapes(void) {
    struct DLManagedTensor* made = NULL;
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_dlpack(object, &spec, &made));
    check_tensor(&made->dl_tensor);
    made->deleter(made);

    const int64_t strides[3] = {1, 2, 6}; /* column-major */
    spec.strides = strides;
    CHECK_OK(gshm_dlpack(object, &spec, &made));
    CHECK(memcmp(made->dl_tensor.strides, strides, sizeof strides) == 0 && made->dl_tensor.strides != strides);
    made->deleter(made);

    const int64_t six[1] = {6};
    spec = (gshm_tensor_spec)GSHM_TENSOR_SPEC_INIT;
    spec.shape = six;
    spec.dimensions = 1;
    spec.offset = BYTES - 6;
    CHECK_OK(gshm_dlpack(object, &spec, &made));
    CHECK((char*)made->dl_tensor.data == (char*)gshm_data(object) + BYTES - 6 && made->dl_tensor.byte_offset == 0);
    made->deleter(made);
    spec.dimensions = 0; /* one element */
    CHECK_OK(gshm_dlpack(object, &spec, &made));
    made->deleter(made);
    const int64_t none[2] = {0, 1000};
    spec.shape = none;
    spec.dimensions = 2;
    CHECK_OK(gshm_dlpack(object, &spec, &made));
    CHECK(made->dl_tensor.data == NULL && made->dl_tensor.shape[1] == 1000);
    made->deleter(made);
}

static void refusals(void) {
    struct DLManagedTensor* made = NULL;
    struct DLManagedTensorVersioned* versioned = NULL;
    gshm_tensor_spec spec = floats();
    spec.offset = 1;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec.offset = UINT64_MAX;
    CHECK_STATUS(gshm_dlpack_versioned(object, &spec, &versioned), -EINVAL);
    const int64_t bad[][2] = {{2, 13}, {-1, 2}, {INT64_MAX, INT64_MAX}, {INT64_MAX, 2}, {1, INT64_MAX}};
    spec = floats();
    spec.dimensions = 2;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        spec.shape = bad[i];
        CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    }
    spec = floats();
    const int64_t strides[3] = {-1, 4, 1};
    spec.strides = strides;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec = floats();
    spec.dimensions = 65;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec.dimensions = -1;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec = floats();
    spec.shape = NULL;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    const int64_t wide[1] = {INT64_C(1) << 43}; /* with these elements 2^64 bytes: no overflow may make them fit */
    spec = floats();
    spec.shape = wide;
    spec.dimensions = 1;
    spec.type_bits = 128;
    spec.type_lanes = 1 << 15;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec.type_lanes = 1 << 14;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec = floats();
    spec.type_bits = 0;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    spec = floats();
    spec.flags = 1u << 31;
    CHECK_STATUS(gshm_dlpack(object, &spec, &made), -EINVAL);
    CHECK_STATUS(gshm_dlpack(NULL, &spec, &made), -EINVAL);
    CHECK_STATUS(gshm_dlpack(object, NULL, &made), -EINVAL);
    CHECK_STATUS(gshm_dlpack(object, &spec, NULL), -EINVAL);
    CHECK(made == NULL && versioned == NULL);

    gshm_object* unmapped = NULL;
    int32_t type = 7, id = 7;
    CHECK_OK(gshm_open(client, kName, GSHM_OPEN_NO_MAP, &unmapped));
    spec = floats();
    CHECK_STATUS(gshm_dlpack(unmapped, &spec, &made), -EOPNOTSUPP);
    CHECK_STATUS(gshm_dlpack_device(unmapped, &type, &id), -EOPNOTSUPP);
    CHECK(type == 7 && id == 7);
    CHECK_STATUS(gshm_dlpack_device(object, NULL, &id), -EINVAL);
    gshm_close(unmapped);
}

static uint64_t flags_of(gshm_object* of, uint32_t flags) {
    struct DLManagedTensorVersioned* made = NULL;
    gshm_tensor_spec spec = floats();
    spec.flags = flags;
    CHECK_OK(gshm_dlpack_versioned(of, &spec, &made));
    const uint64_t seen = made->flags;
    CHECK(made->major == 1 && made->minor == 1 && made->manager_ctx != NULL);
    CHECK(made->dl_tensor.ndim == 3 && made->dl_tensor.strides[0] == 12);
    made->deleter(made);
    return seen;
}

static void copies(void) {
    float numbers[24], seen[24];
    for (int i = 0; i < 24; ++i) numbers[i] = (float)i;
    CHECK_OK(gshm_copy_in(object, 0, numbers, sizeof numbers));
    gshm_object* copy = NULL;
    CHECK_OK(gshm_clone(object, 0, BYTES, &copy));
    CHECK(gshm_size(copy) == BYTES && gshm_id(copy) == 0 && gshm_data(copy) != gshm_data(object));
    CHECK_OK(gshm_copy_out(copy, 0, seen, sizeof seen));
    CHECK(memcmp(numbers, seen, sizeof seen) == 0);
    CHECK_OK(gshm_fill(copy, 0, BYTES, 0)); /* private */
    CHECK_OK(gshm_copy_out(object, 0, seen, sizeof seen));
    CHECK(memcmp(numbers, seen, sizeof seen) == 0);
    CHECK(flags_of(copy, GSHM_TENSOR_COPIED) == COPIED);
    gshm_close(copy);
    CHECK_OK(gshm_clone(object, 4, 8, &copy));
    CHECK_OK(gshm_copy_out(copy, 0, seen, 8));
    CHECK(memcmp(numbers + 1, seen, 8) == 0);
    gshm_close(copy);
    CHECK_STATUS(gshm_clone(object, 0, 0, &copy), -EINVAL);
    CHECK_STATUS(gshm_clone(object, 1, BYTES, &copy), -EINVAL);
    CHECK_STATUS(gshm_clone(NULL, 0, 1, &copy), -EINVAL);
    CHECK_STATUS(gshm_clone(object, 0, 1, NULL), -EINVAL);
}

/* A capsule as Python makes it. */
struct capsule {
    const char* name;
    void* pointer;
};
static int is_valid(void* capsule, const char* name) {
    return strcmp(((struct capsule*)capsule)->name, name) == 0;
}
static void* get_pointer(void* capsule, const char* name) {
    return is_valid(capsule, name) ? ((struct capsule*)capsule)->pointer : NULL;
}

static void capsules(void) {
    CHECK(gshm_dlpack_capsule(NULL, get_pointer) == NULL && gshm_dlpack_capsule(is_valid, NULL) == NULL);
    const gshm_capsule_destructor destroy = gshm_dlpack_capsule(is_valid, get_pointer);
    gshm_object* reader = NULL;
    struct DLManagedTensor* made = NULL;
    struct DLManagedTensorVersioned* versioned = NULL;
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_open(client, kName, 0, &reader));
    CHECK_OK(gshm_dlpack(reader, &spec, &made));
    CHECK_OK(gshm_dlpack_versioned(reader, &spec, &versioned));
    gshm_close(reader);
    struct capsule taken = {"used_dltensor", made};
    destroy(&taken); /* its consumer has the tensor */
    CHECK(holders() == 1);
    struct capsule first = {"dltensor", made};
    destroy(&first);
    CHECK(holders() == 1);
    struct capsule second = {"dltensor_versioned", versioned};
    destroy(&second);
    CHECK(holders() == 0);
}

static void* delete_it(void* managed) {
    test_delete_tensor(managed);
    return NULL;
}

/* The lease ends with the last of the object and its tensors. */
static void lifetimes(void) {
    gshm_object* reader = NULL;
    CHECK_OK(gshm_open(client, kName, 0, &reader));
    CHECK(flags_of(reader, 0) == READ_ONLY);
    struct DLManagedTensor* tensors[2];
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_dlpack(reader, &spec, &tensors[0]));
    CHECK_OK(gshm_dlpack(reader, &spec, &tensors[1]));
    gshm_close(reader);
    CHECK(holders() == 1);
    tensors[0]->deleter(tensors[0]);
    CHECK(holders() == 1);
    if (tensors[1]->dl_tensor.device.type == CPU) CHECK(((float*)tensors[1]->dl_tensor.data)[3] == 3);
    const pid_t child = fork();
    if (child == 0) { /* frees the copy of the child, and keeps the lease of the parent */
        tensors[1]->deleter(tensors[1]);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(holders() == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, delete_it, tensors[1]) == 0);
    pthread_join(thread, NULL);
    CHECK(holders() == 0);
}

/* An address leads to its object while a tensor refers to it. */
static void places(void) {
    gshm_object* opened = NULL;
    CHECK_OK(gshm_open(client, kName, 0, &opened));
    const char* address = gshm_data(opened);
    gshm_location place = GSHM_LOCATION_INIT;
    char folder[4096];
    CHECK_STATUS(gshm_locate(address, &place, folder, sizeof folder), -EINVAL);
    struct DLManagedTensor* made = NULL;
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_dlpack(opened, &spec, &made));
    CHECK_OK(gshm_locate(address + 8, &place, folder, sizeof folder));
    CHECK(place.id == gshm_id(opened) && place.offset == 8 && place.size_bytes == gshm_size(opened) - 8);
    CHECK(strcmp(place.device, gshm_device(opened)) == 0);
    char own[4096];
    CHECK_OK(gshm_client_dir(client, own, sizeof own));
    CHECK(strcmp(folder, own) == 0);
    CHECK_STATUS(gshm_locate(address + gshm_size(opened), &place, folder, sizeof folder), -EINVAL);
    CHECK_STATUS(gshm_locate(address, &place, folder, 1), -ERANGE);
    CHECK_STATUS(gshm_locate(address, NULL, folder, sizeof folder), -EINVAL);
    CHECK_STATUS(gshm_locate(address, &place, NULL, 0), -EINVAL);
    gshm_close(opened);
    CHECK_OK(gshm_locate(address, &place, folder, sizeof folder));
    made->deleter(made);
    CHECK_STATUS(gshm_locate(address, &place, folder, sizeof folder), -EINVAL);
}

static void pools(void) {
    gshm_pool* pool = NULL;
    gshm_pool_options options = GSHM_POOL_OPTIONS_INIT;
    options.slab_bytes = 1 << 20;
    CHECK_OK(gshm_pool_create(client, &options, &pool));
    gshm_object* memory = NULL;
    CHECK_STATUS(gshm_pool_allocate_object(pool, 0, 0, NULL, &memory), -EINVAL);
    CHECK_STATUS(gshm_pool_allocate_object(pool, 1, 0, NULL, NULL), -EINVAL);
    CHECK_STATUS(gshm_pool_allocate_object(NULL, 1, 0, NULL, &memory), -EINVAL);
    CHECK_OK(gshm_pool_allocate_object(pool, BYTES, 0, NULL, &memory));
    gshm_location place = GSHM_LOCATION_INIT;
    CHECK_OK(gshm_pool_locate(gshm_data(memory), &place));
    CHECK(gshm_size(memory) == BYTES && place.size_bytes >= BYTES);
    struct DLManagedTensor* made = NULL;
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_dlpack(memory, &spec, &made));
    gshm_close(memory);
    gshm_pool_stats stats = GSHM_POOL_STATS_INIT;
    CHECK_OK(gshm_pool_get_stats(pool, &stats));
    CHECK(stats.allocations == 1);
    made->deleter(made);
    CHECK_OK(gshm_pool_get_stats(pool, &stats));
    CHECK(stats.allocations == 0);

    CHECK_OK(gshm_pool_allocate_object(pool, BYTES, 0, NULL, &memory));
    const void* address = gshm_data(memory);
    gshm_pool_destroy(pool); /* with the last object */
    CHECK_OK(gshm_fill(memory, 0, BYTES, 7));
    CHECK_OK(gshm_pool_locate(address, &place));
    char folder[4096];
    CHECK_OK(gshm_locate(address, &place, folder, sizeof folder));
    CHECK(place.size_bytes >= BYTES && folder[0] != '\0');
    gshm_close(memory);
    CHECK_STATUS(gshm_pool_locate(address, &place), -EINVAL);
}

void test_dlpack(const char* dir) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir;
    CHECK_OK(gshm_connect(&options, &client));
    if (!client) return;
    gshm_create_spec create = GSHM_CREATE_SPEC_INIT;
    create.name = kName;
    create.size_bytes = BYTES;
    create.flags = GSHM_CREATE_KEEP;
    CHECK_OK(gshm_create(client, &create, &object));
    shapes();
    refusals();
    copies();
    CHECK(flags_of(object, 0) == 0 && flags_of(object, GSHM_TENSOR_READ_ONLY) == READ_ONLY);
    CHECK_OK(gshm_seal(object));
    CHECK(flags_of(object, 0) == READ_ONLY);
    gshm_close(object);
    lifetimes();
    capsules();
    places();
    pools();
    CHECK_OK(gshm_open(client, kName, 0, &object));
    struct DLManagedTensor* last = NULL;
    gshm_tensor_spec spec = floats();
    CHECK_OK(gshm_dlpack(object, &spec, &last));
    gshm_close(object);
    CHECK_OK(gshm_unlink(client, kName));
    gshm_disconnect(client); /* the tensor outlives its client */
    last->deleter(last);
}
