/* 3FS's usrbio interface on gshm: GPU memory. Rings, files and prep_io are in hf3fs_usrbio.h.
 *
 * -EINVAL: invalid arguments. -ENOTSUP: no CUDA here, or not possible for this kind of memory. -ENODEV: no such GPU in
 * this process or at the daemon. -ENOMEM: the GPU is full. Device numbers are those of this process, as set by
 * CUDA_VISIBLE_DEVICES. */
#ifndef GSHM_COMPAT_HF3FS_USRBIO_GDR_H
#define GSHM_COMPAT_HF3FS_USRBIO_GDR_H

#include "hf3fs_usrbio.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

int hf3fs_iovcreate_gpu(struct hf3fs_iov* iov, const char* hf3fs_mount_point, size_t size, size_t block_size,
                        int gpu_device_id);
/* Opens, by its id, memory that another process created, or wrapped if it came from cudaMalloc. */
int hf3fs_iovopen_gpu(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                      size_t block_size, int gpu_device_id);
/* Wraps any address in any GPU memory of this process. The caller owns the memory and keeps it until destroy. -EEXIST:
 * the id exists. */
int hf3fs_iovwrap_gpu(struct hf3fs_iov* iov, void* gpu_ptr, const uint8_t id[16], const char* hf3fs_mount_point,
                      size_t size, size_t block_size, int gpu_device_id);
void hf3fs_iovunlink_gpu(struct hf3fs_iov* iov);
void hf3fs_iovdestroy_gpu(struct hf3fs_iov* iov);

bool hf3fs_iov_is_gpu(const struct hf3fs_iov* iov);
int hf3fs_iov_gpu_device(const struct hf3fs_iov* iov); /* -1: host memory */

/* 0: GPU writes queued so far on the default stream are visible to operations submitted next. 1: completed operations
 * are visible to the GPU; that holds without this call. */
int hf3fs_iovsync_gpu(const struct hf3fs_iov* iov, int direction);

/* Can be sent to another process by any means. 64 bytes of handle, 8 of size, 8 of device. */
typedef struct {
    uint8_t data[80];
} hf3fs_gpu_ipc_handle_t;

int hf3fs_iov_export_gpu(const struct hf3fs_iov* iov, hf3fs_gpu_ipc_handle_t* handle);
/* Imports the same range of the same memory. Created memory outlives its exporter, wrapped memory does not. */
int hf3fs_iov_import_gpu(struct hf3fs_iov* iov, const hf3fs_gpu_ipc_handle_t* handle, const char* hf3fs_mount_point);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
