/* 3FS's usrbio interface on gshm: concurrent transfers between files and shared memory or GPU memory.
 *
 * Structs, values and signatures are those of 3FS, so programs compile and run unchanged. docs/usrbio.md describes the
 * meaning of a mount point, the environment variables and the differences. Link libgshm_usrbio.
 *
 * Calls return 0 or -errno unless stated otherwise. The caller owns the structs iov and ior. create, open, wrap and
 * import fill them in; destroy releases the resources behind them. */
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

/* Memory for transfers. */
struct hf3fs_iov {
    uint8_t* base; /* CPU or GPU address */
    hf3fs_iov_handle iovh;
    char id[16]; /* identifies it to other processes */
    char mount_point[256];
    size_t size;
    size_t block_size;
    int numa;
};

/* A ring, for reading or for writing. One thread prepares while another may wait. */
struct hf3fs_ior {
    struct hf3fs_iov iov;
    hf3fs_ior_handle iorh;
    char mount_point[256];
    bool for_read;
    int io_depth; /* > 0: starts when that many are prepared; submit and wait always start them */
    int priority;
    int timeout;
    uint64_t flags; /* HF3FS_IOR_... */
};

struct hf3fs_cqe {
    int32_t index; /* from prep_io */
    int32_t reserved;
    int64_t result; /* bytes, fewer than requested at the end of the file; or -errno */
    const void* userdata;
};

/* Whether it is a file of a gshm mount. (Other files can be registered and used too.) */
bool hf3fs_is_hf3fs(int fd);
/* Finds the gshm mount that contains the path. Returns the length of its path + 1, or -1 if there is none. Writes the
 * path if it fits `size`. */
int hf3fs_extract_mount_point(char* hf3fs_mount_point, int size, const char* path);

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Zeroed shared memory. -ENOSPC: not enough. numa >= 0: on that node, if the machine has it. */
int hf3fs_iovcreate(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size, int numa);
/* Opens memory that another process created. It lives until the last process destroys it. */
int hf3fs_iovopen(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa);
/* Memory of any kind that the caller owns and keeps until destroy. */
int hf3fs_iovwrap(struct hf3fs_iov* iov, void* base, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                  size_t block_size, int numa);
/* Removes the id. */
void hf3fs_iovunlink(struct hf3fs_iov* iov);
/* Also unlinks memory created here. Transfers in flight are not affected. */
void hf3fs_iovdestroy(struct hf3fs_iov* iov);

/* ---- Rings ----------------------------------------------------------------------------------------------------- */

#define HF3FS_IOR_ALLOW_READ_UNCOMMITTED 1
#define HF3FS_IOR_FORBID_READ_HOLES 2 /* reading a hole gives -ENODATA instead of zeros */

size_t hf3fs_ior_size(int entries);
/* -ENOSPC: not enough shared memory. */
int hf3fs_iorcreate(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                    int numa);
int hf3fs_iorcreate2(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int numa);
int hf3fs_iorcreate3(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int priority, int timeout, int numa);
int hf3fs_iorcreate4(struct hf3fs_ior* ior, const char* hf3fs_mount_point, int entries, bool for_read, int io_depth,
                     int timeout, int numa, uint64_t flags);
/* Waits for transfers in flight. */
void hf3fs_iordestroy(struct hf3fs_ior* ior);
/* The number of operations that can be prepared before completions are taken. */
int hf3fs_io_entries(const struct hf3fs_ior* ior);

/* <= 0: registered (the result may be used in place of fd); > 0: an errno. EBADF: not a regular file or block device.
 * EINVAL: that number is already registered. The file stays usable here after fd is closed. */
int hf3fs_reg_fd(int fd, uint64_t flags);
void hf3fs_dereg_fd(int fd);

/* Returns an index >= 0. -EINVAL: the range is not inside the iov, or the ring has the other direction. -EBADF: not
 * registered. -EACCES: the file is not open for that. -EAGAIN: the ring is full; take completions first. */
int hf3fs_prep_io(const struct hf3fs_ior* ior, const struct hf3fs_iov* iov, bool read, void* ptr, int fd, size_t off,
                  uint64_t len, const void* userdata);
int hf3fs_submit_ios(const struct hf3fs_ior* ior);
/* Returns the number of completions written, each available as soon as its transfer ends: at least min_results (or
 * cqec, if less), fewer after abs_timeout (CLOCK_REALTIME; NULL: no limit). */
int hf3fs_wait_for_ios(const struct hf3fs_ior* ior, struct hf3fs_cqe* cqes, int cqec, int min_results,
                       const struct timespec* abs_timeout);

/* ---- Files; these two return 0 or a positive errno -------------------------------------------------------------- */

int hf3fs_hardlink(const char* target, const char* link_name);
/* Punches n holes [start, end); the file size does not change. */
int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags);

/* ---- GPU memory, in 3FS's later spelling; hf3fs_usrbio_gdr.h has the earlier one -------------------------------- */

enum hf3fs_mem_type {
    HF3FS_MEM_HOST = 0,
    HF3FS_MEM_DEVICE = 1,
    HF3FS_MEM_MANAGED = 2,
};

/* Whether this process sees a GPU, and how many. With GSHM_USRBIO_DEVICE=host: true, and one. */
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
/* As hf3fs_iovsync_gpu(); a no-op for host memory. */
int hf3fs_iovsync(const struct hf3fs_iov* iov, int direction);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
