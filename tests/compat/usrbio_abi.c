/* 3FS's interface as a C11 program that was written for it sees it: layouts and signatures when it is compiled, and
 * that every function is there and can take nothing for an argument when it runs. Numbers are those of 64-bit Linux. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/api/hf3fs_usrbio.h"
#include "lib/api/hf3fs_usrbio_gdr.h"

#define LAYOUT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define LAYOUT(type, field, at, bytes)                                               \
    _Static_assert(offsetof(type, field) == (at), #type "." #field " is elsewhere"); \
    _Static_assert(sizeof(((type*)0)->field) == (bytes), #type "." #field " has another size")

LAYOUT_SIZE(struct hf3fs_iov, 312);
LAYOUT(struct hf3fs_iov, base, 0, 8);
LAYOUT(struct hf3fs_iov, iovh, 8, 8);
LAYOUT(struct hf3fs_iov, id, 16, 16);
LAYOUT(struct hf3fs_iov, mount_point, 32, 256);
LAYOUT(struct hf3fs_iov, size, 288, 8);
LAYOUT(struct hf3fs_iov, block_size, 296, 8);
LAYOUT(struct hf3fs_iov, numa, 304, 4);

LAYOUT_SIZE(struct hf3fs_ior, 600);
LAYOUT(struct hf3fs_ior, iov, 0, 312);
LAYOUT(struct hf3fs_ior, iorh, 312, 8);
LAYOUT(struct hf3fs_ior, mount_point, 320, 256);
LAYOUT(struct hf3fs_ior, for_read, 576, 1);
LAYOUT(struct hf3fs_ior, io_depth, 580, 4);
LAYOUT(struct hf3fs_ior, priority, 584, 4);
LAYOUT(struct hf3fs_ior, timeout, 588, 4);
LAYOUT(struct hf3fs_ior, flags, 592, 8);

LAYOUT_SIZE(struct hf3fs_cqe, 24);
LAYOUT(struct hf3fs_cqe, index, 0, 4);
LAYOUT(struct hf3fs_cqe, reserved, 4, 4);
LAYOUT(struct hf3fs_cqe, result, 8, 8);
LAYOUT(struct hf3fs_cqe, userdata, 16, 8);

LAYOUT_SIZE(hf3fs_gpu_ipc_handle_t, 80);

_Static_assert(HF3FS_SUPER_MAGIC == 0x8f3f5fff, "");
_Static_assert(HF3FS_IOR_ALLOW_READ_UNCOMMITTED == 1 && HF3FS_IOR_FORBID_READ_HOLES == 2, "");
_Static_assert(HF3FS_MEM_HOST == 0 && HF3FS_MEM_DEVICE == 1 && HF3FS_MEM_MANAGED == 2, "");

typedef struct hf3fs_iov iov_t;
typedef struct hf3fs_ior ior_t;
typedef struct hf3fs_cqe cqe_t;
typedef struct timespec timespec_t;

#define FUNCTIONS(X)                                                                                     \
    X(hf3fs_is_hf3fs, bool, (int))                                                                       \
    X(hf3fs_extract_mount_point, int, (char*, int, const char*))                                         \
    X(hf3fs_iovcreate, int, (iov_t*, const char*, size_t, size_t, int))                                  \
    X(hf3fs_iovopen, int, (iov_t*, const uint8_t*, const char*, size_t, size_t, int))                    \
    X(hf3fs_iovwrap, int, (iov_t*, void*, const uint8_t*, const char*, size_t, size_t, int))             \
    X(hf3fs_iovunlink, void, (iov_t*))                                                                   \
    X(hf3fs_iovdestroy, void, (iov_t*))                                                                  \
    X(hf3fs_ior_size, size_t, (int))                                                                     \
    X(hf3fs_io_entries, int, (const ior_t*))                                                             \
    X(hf3fs_iorcreate, int, (ior_t*, const char*, int, bool, int, int))                                  \
    X(hf3fs_iorcreate2, int, (ior_t*, const char*, int, bool, int, int, int))                            \
    X(hf3fs_iorcreate3, int, (ior_t*, const char*, int, bool, int, int, int, int))                       \
    X(hf3fs_iorcreate4, int, (ior_t*, const char*, int, bool, int, int, int, uint64_t))                  \
    X(hf3fs_iordestroy, void, (ior_t*))                                                                  \
    X(hf3fs_reg_fd, int, (int, uint64_t))                                                                \
    X(hf3fs_dereg_fd, void, (int))                                                                       \
    X(hf3fs_prep_io, int, (const ior_t*, const iov_t*, bool, void*, int, size_t, uint64_t, const void*)) \
    X(hf3fs_submit_ios, int, (const ior_t*))                                                             \
    X(hf3fs_wait_for_ios, int, (const ior_t*, cqe_t*, int, int, const timespec_t*))                      \
    X(hf3fs_hardlink, int, (const char*, const char*))                                                   \
    X(hf3fs_punchhole, int, (int, int, const size_t*, const size_t*, size_t))                            \
    X(hf3fs_gdr_available, bool, (void))                                                                 \
    X(hf3fs_gdr_device_count, int, (void))                                                               \
    X(hf3fs_iovcreate_gpu, int, (iov_t*, const char*, size_t, size_t, int))                              \
    X(hf3fs_iovopen_gpu, int, (iov_t*, const uint8_t*, const char*, size_t, size_t, int))                \
    X(hf3fs_iovwrap_gpu, int, (iov_t*, void*, const uint8_t*, const char*, size_t, size_t, int))         \
    X(hf3fs_iovunlink_gpu, void, (iov_t*))                                                               \
    X(hf3fs_iovdestroy_gpu, void, (iov_t*))                                                              \
    X(hf3fs_iov_is_gpu, bool, (const iov_t*))                                                            \
    X(hf3fs_iov_gpu_device, int, (const iov_t*))                                                         \
    X(hf3fs_iovsync_gpu, int, (const iov_t*, int))                                                       \
    X(hf3fs_iov_export_gpu, int, (const iov_t*, hf3fs_gpu_ipc_handle_t*))                                \
    X(hf3fs_iov_import_gpu, int, (iov_t*, const hf3fs_gpu_ipc_handle_t*, const char*))                   \
    X(hf3fs_iovcreate_device, int, (iov_t*, const char*, size_t, size_t, int))                           \
    X(hf3fs_iovopen_device, int, (iov_t*, const uint8_t*, const char*, size_t, size_t, int))             \
    X(hf3fs_iovwrap_device, int, (iov_t*, void*, const uint8_t*, const char*, size_t, size_t, int))      \
    X(hf3fs_iovsync, int, (const iov_t*, int))                                                           \
    X(hf3fs_iov_mem_type, enum hf3fs_mem_type, (const iov_t*))                                           \
    X(hf3fs_iov_device_id, int, (const iov_t*))

#define TYPE_IS_AS_WRITTEN(name, result, arguments) \
    _Static_assert(_Generic(&name, result(*) arguments: 1, default: 0), #name " has another type");
FUNCTIONS(TYPE_IS_AS_WRITTEN)

typedef void (*any_function)(void);
#define ENTRY(name, result, arguments) (any_function) name,
static const any_function functions[] = {FUNCTIONS(ENTRY)};

static int failed;
#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%d: failed: %s\n", __LINE__, #condition); \
            failed = 1;                                                \
        }                                                              \
    } while (0)

/* Structs of zeros, and no structs at all: errors, and no crash. */
static void nothing(iov_t* iov, ior_t* ior) {
    cqe_t cqe;
    char byte = 0;
    hf3fs_iovunlink(iov);
    hf3fs_iovdestroy(iov);
    hf3fs_iovunlink_gpu(iov);
    hf3fs_iovdestroy_gpu(iov);
    hf3fs_iordestroy(ior);
    CHECK(!hf3fs_iov_is_gpu(iov) && hf3fs_iov_gpu_device(iov) == -1 && hf3fs_iov_device_id(iov) == -1);
    CHECK(hf3fs_iov_mem_type(iov) == HF3FS_MEM_HOST);
    CHECK(hf3fs_iovsync_gpu(iov, 0) == -EINVAL && hf3fs_iovsync(iov, 0) == -EINVAL);
    CHECK(hf3fs_io_entries(ior) == 0);
    CHECK(hf3fs_prep_io(ior, iov, true, &byte, 0, 0, 1, NULL) == -EINVAL);
    CHECK(hf3fs_submit_ios(ior) == -EINVAL);
    CHECK(hf3fs_wait_for_ios(ior, &cqe, 1, 0, NULL) == -EINVAL);
    hf3fs_gpu_ipc_handle_t handle;
    memset(&handle, 0, sizeof handle);
    CHECK(hf3fs_iov_export_gpu(iov, &handle) == -EINVAL);
}

int main(void) {
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) CHECK(functions[i] != NULL);
    iov_t iov;
    ior_t ior;
    memset(&iov, 0, sizeof iov);
    memset(&ior, 0, sizeof ior);
    nothing(&iov, &ior);
    nothing(NULL, NULL);
    CHECK(hf3fs_iovcreate(NULL, "/", 1, 0, -1) == -EINVAL && hf3fs_iovcreate(&iov, NULL, 1, 0, -1) == -EINVAL);
    CHECK(hf3fs_iovcreate(&iov, "/", 0, 0, -1) == -EINVAL && hf3fs_iovcreate(&iov, "", 1, 0, -1) == -EINVAL);
    CHECK(hf3fs_iovcreate(&iov, "/proc", 1, 0, -1) == -EINVAL); /* no daemon's */
    CHECK(hf3fs_iovcreate(&iov, "/nonexistent", 1, 0, -1) == -ENOENT);
    char far[300];
    memset(far, 'x', sizeof far);
    far[299] = '\0';
    CHECK(hf3fs_iovcreate(&iov, far, 1, 0, -1) == -EINVAL && hf3fs_iorcreate(&ior, far, 1, true, 0, -1) == -EINVAL);
    CHECK(hf3fs_iorcreate4(&ior, "/", 1, true, 0, -1, -1, 0) == -EINVAL);
    CHECK(hf3fs_iorcreate(NULL, "/", 1, true, 0, -1) == -EINVAL);
    CHECK(hf3fs_iorcreate(&ior, NULL, 1, true, 0, -1) == -EINVAL);
    CHECK(hf3fs_reg_fd(-1, 0) == EBADF && hf3fs_reg_fd(9999, 0) == EBADF);
    hf3fs_dereg_fd(-1);
    hf3fs_dereg_fd(9999);
    CHECK(!hf3fs_is_hf3fs(0) && !hf3fs_is_hf3fs(-1));
    char where[16];
    CHECK(hf3fs_extract_mount_point(where, sizeof where, "/") == -1);
    CHECK(hf3fs_extract_mount_point(where, sizeof where, "/nonexistent/a/b") == -1);
    CHECK(hf3fs_extract_mount_point(where, sizeof where, NULL) == -1);
    CHECK(hf3fs_hardlink("/nonexistent", "/tmp") == ENOENT && hf3fs_hardlink(NULL, "/tmp") == EINVAL);
    CHECK(hf3fs_punchhole(-1, 0, NULL, NULL, 0) == 0 && hf3fs_punchhole(-1, -1, NULL, NULL, 0) == EINVAL);
    const size_t at[] = {0, 8192};
    CHECK(hf3fs_punchhole(-1, 1, at, at + 1, 0) == EBADF && hf3fs_punchhole(-1, 1, at + 1, at, 0) == EINVAL);
    CHECK(hf3fs_ior_size(64) > hf3fs_ior_size(1) && hf3fs_ior_size(1) > 0 && hf3fs_ior_size(0) == 0);
    return failed;
}
