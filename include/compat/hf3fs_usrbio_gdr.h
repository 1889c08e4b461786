/* 3FS's usrbio interface on gshm: GPU memory. Rings, files and prep_io are those of hf3fs_usrbio.h.
 *
 * -EINVAL: arguments that make no sense. -ENOTSUP: no CUDA here, or memory that cannot be had that way. -ENODEV: no such
 * GPU, here or at the daemon. -ENOMEM: the GPU is full. Device numbers are this process's own, as CUDA_VISIBLE_DEVICES
 * has them. */
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
/* By its id, what another process has created, or has wrapped if it came from cudaMalloc. */
int hf3fs_iovopen_gpu(struct hf3fs_iov* iov, const uint8_t id[16], const char* hf3fs_mount_point, size_t size,
                      size_t block_size, int gpu_device_id);
/* Any address inside of any GPU memory of this process. It is the caller's, and stays until destroy. -EEXIST: the id is
 * taken. */
int hf3fs_iovwrap_gpu(struct hf3fs_iov* iov, void* gpu_ptr, const uint8_t id[16], const char* hf3fs_mount_point,
                      size_t size, size_t block_size, int gpu_device_id);
void hf3fs_iovunlink_gpu(struct hf3fs_iov* iov);
void hf3fs_iovdestroy_gpu(struct hf3fs_iov* iov);

bool hf3fs_iov_is_gpu(const struct hf3fs_iov* iov);
int hf3fs_iov_gpu_device(const struct hf3fs_iov* iov); /* -1: host memory */

/* 0: what the GPU was asked to write before, in the default stream, is there for what is submitted next. 1: what was
 * completed is there for the GPU; that is so without this call. */
int hf3fs_iovsync_gpu(const struct hf3fs_iov* iov, int direction);

/* To be handed to another process by whatever means. 64 bytes of handle, 8 of size, 8 of device. */
typedef struct {
    uint8_t data[80];
} hf3fs_gpu_ipc_handle_t;

int hf3fs_iov_export_gpu(const struct hf3fs_iov* iov, hf3fs_gpu_ipc_handle_t* handle);
/* The same range of the same memory. Created memory lives on when its exporter goes, wrapped memory does not. */
int hf3fs_iov_import_gpu(struct hf3fs_iov* iov, const hf3fs_gpu_ipc_handle_t* handle, const char* hf3fs_mount_point);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
