/* 3FS's usrbio interface on gshm: files read into and written from shared memory and GPU memory, many at once.
 *
 * Structs, values and signatures are those of 3FS, so that its programs compile and run unchanged; docs/usrbio.md says
 * what a mount point is here, which environment variables there are, and what differs. Link libgshm_usrbio.
 *
 * Calls return 0 or -errno unless they say otherwise. An iov or ior is the caller's own struct; create, open, wrap and
 * import fill it in, destroy lets go of what it stands for. */
#ifndef GSHM_COMPAT_HF3FS_USRBIO_H
#define GSHM_COMPAT_HF3FS_USRBIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define HF3FS_SUPER_MAGIC 0x8f3f5fff

typedef void* hf3fs_iov_handle;
typedef void* hf3fs_ior_handle;

/* Memory that is read into and written from. */
struct hf3fs_iov {
    uint8_t* base; /* an address of the CPU's, or of the GPU's */
    hf3fs_iov_handle iovh;
    char id[16]; /* what another process opens it by */
    char mount_point[256];
    size_t size;
    size_t block_size;
    int numa;
};

/* A ring, for reading or for writing. One thread prepares; another may wait meanwhile. */
struct hf3fs_ior {
    struct hf3fs_iov iov;
    hf3fs_ior_handle iorh;
    char mount_point[256];
    bool for_read;
    int io_depth; /* > 0: what is prepared begins when it is so many; always at submit and at wait */
    int priority;
    int timeout;
    uint64_t flags; /* HF3FS_IOR_... */
};

struct hf3fs_cqe {
    int32_t index; /* as prep_io returned it */
    int32_t reserved;
    int64_t result; /* bytes, fewer than asked for where the file ends; or -errno */
    const void* userdata;
};

/* Is it a file of a gshm mount? (Others can be registered and used just as well.) */
bool hf3fs_is_hf3fs(int fd);
/* Where the gshm mount is that the path is in: length + 1, or -1 if it is in none. Written if that fits `size`. */
int hf3fs_extract_mount_point(char* hf3fs_mount_point, int size, const char* path);

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Shared memory of zeros. -ENOSPC: there is not so much. numa >= 0: on that node, where the machine has it. */
int hf3fs_iovcreate(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size, int numa);
/* What another process has created. It stays while one of them has it. */
int hf3fs_iovopen(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa);
/* Memory that the caller has and keeps, of any kind, until destroy. */
int hf3fs_iovwrap(struct hf3fs_iov* iov, void* base, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa);
/* From now on nobody finds it by its id. */
void hf3fs_iovunlink(struct hf3fs_iov* iov);
/* Unlinks what was created here. What is under way with it is not disturbed. */
void hf3fs_iovdestroy(struct hf3fs_iov* iov);

/* ---- Rings ----------------------------------------------------------------------------------------------------- */

#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1
#define HF3FS_IOR_FORBID_READ_HOLES 2 /* reading a hole is -ENODATA; else zeros */

size_t hf3fs_ior_size(int entries);
/* -ENOSPC: there is no shared memory for it. */
int hf3fs_iorcreate(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                    int numa);
int hf3fs_iorcreate2(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int numa);
int hf3fs_iorcreate3(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int timeout, int numa);
int hf3fs_iorcreate4(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int timeout, int numa, uint64_t flags);
/* Waits for what is under way. */
void hf3fs_iordestroy(struct hf3fs_ior* ior);
/* How many may be prepared before completions are taken. */
int hf3fs_io_entries(const struct hf3fs_ior* ior);

/* <= 0: registered (and what it returns may be used in the place of fd); > 0: an errno. EBADF: no regular file or block
 * device. EINVAL: that number is registered. The file stays usable here when fd is closed. */
int hf3fs_reg_fd(int fd, uint64_t flags);
void hf3fs_dereg_fd(int fd);

/* An index >= 0. -EINVAL: a range outside of the iov, or the wrong direction for this ring. -EBADF: not registered.
 * -EACCES: the file is not open for that. -EAGAIN: the ring is full until completions are taken. */
int hf3fs_prep_io(const struct hf3fs_ior* ior, const struct hf3fs_iov* iov, bool read, void* ptr, int fd, size_t off,
                  uint64_t len, const void* userdata);
int hf3fs_submit_ios(const struct hf3fs_ior* ior);
/* How many were written, each as soon as it is there: at least min_results (cqec, if that is less), fewer when
 * abs_timeout (of CLOCK_REALTIME; NULL: for ever) has passed. */
int hf3fs_wait_for_ios(const struct hf3fs_ior* ior, struct hf3fs_cqe* cqes, int cqec, int min_results,
                       const struct timespec* abs_timeout);

/* ---- Files; these two return 0 or a positive errno -------------------------------------------------------------- */

int hf3fs_hardlink(const char* target, const char* link_name);
/* n ranges [start, end) become holes; the size stays. */
int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags);

/* ---- GPU memory, in 3FS's later spelling; hf3fs_usrbio_gdr.h has the earlier one -------------------------------- */

enum hf3fs_mem_type {
    HF3FS_MEM_HOST = 0,
    HF3FS_MEM_DEVICE = 1,
    HF3FS_MEM_MANAGED = 2,
};

/* Does this process see a GPU, and how many? (Or does it say GSHM_USRBIO_DEVICE=host: then true, and one.) */
bool hf3fs_gdr_available(void);
int hf3fs_gdr_device_count(void);

int hf3fs_iovcreate_device(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size,
                           int device_id);
int hf3fs_iovopen_device(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                         size_t block_size, int device_id);
int hf3fs_iovwrap_device(struct hf3fs_iov* iov, void* device_ptr, const uint8_t id[16], const char* hf3fs_mount_point,
                         size_t size, size_t block_size, int device_id);
enum hf3fs_mem_type hf3fs_iov_mem_type(const struct hf3fs_iov* iov);
int hf3fs_iov_device_id(const struct hf3fs_iov* iov); /* -1: host memory */
/* As hf3fs_iovsync_gpu(); nothing to do for host memory. */
int hf3fs_iovsync(const struct hf3fs_iov* iov, int direction);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
