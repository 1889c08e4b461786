/* Reads a file into GPU memory allocated by the library: the example of 3FS's documentation, unchanged. */
#define _GNU_SOURCE
#include "lib/api/hf3fs_usrbio_gdr.h"
#include "support.h"

int main(void) {
    size_t buffer_size = 8 << 20;
    int gpu_device_id = 0;

    // Check if GDR is available on this system
    if (hf3fs_gdr_available()) {
        int gpu_count = hf3fs_gdr_device_count();
        printf("GDR available with %d GPUs\n", gpu_count);
    }

    // Create GPU iov - library allocates GPU memory internally
    struct hf3fs_iov iov;
    int ret = hf3fs_iovcreate_gpu(&iov, "/mnt/hf3fs", buffer_size, 0, gpu_device_id);
    if (ret != 0) {
        fprintf(stderr, "Failed to create GPU iov: %d\n", ret);
        return ret;
    }

    // Create I/O ring (same as regular usrbio)
    struct hf3fs_ior ior;
    hf3fs_iorcreate4(&ior, "/mnt/hf3fs", 64, true, 0, 0, -1, 0);

    // Register file
    int fd = open("/mnt/hf3fs/data/file.bin", O_RDONLY);
    hf3fs_reg_fd(fd, 0);

    // Submit read to GPU memory (same as regular usrbio)
    hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, buffer_size, NULL);
    hf3fs_submit_ios(&ior);

    // Wait for completion
    struct hf3fs_cqe cqe;
    hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL);

    // Use data in GPU memory...
    expect_bytes_of("/mnt/hf3fs/data/file.bin", 0, iov.base, buffer_size);

    // Check if an iov contains GPU memory
    if (hf3fs_iov_is_gpu(&iov)) {
        // Get GPU device ID
        int device_id = hf3fs_iov_gpu_device(&iov);
        printf("GPU iov on device %d\n", device_id);
    }

    // Synchronize GPU memory for coherency (usually automatic)
    // direction: 0 = before RDMA (GPU writes visible to RDMA)
    //           1 = after RDMA (RDMA writes visible to GPU)
    hf3fs_iovsync_gpu(&iov, 0);

    // Cleanup
    hf3fs_iovdestroy_gpu(&iov);
    hf3fs_iordestroy(&ior);
    return cqe.result == (int64_t)buffer_size ? 0 : 1;
}
