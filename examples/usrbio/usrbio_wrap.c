/* Reads a part of a file into existing GPU memory, at an inner address: the example of 3FS's documentation, unchanged,
 * with the setup that it omits. */
#define _GNU_SOURCE
#include "lib/api/hf3fs_usrbio_gdr.h"
#include "support.h"

int main(void) {
    size_t buffer_size = 4 << 20;
    int gpu_device_id = 0;
    size_t offset = 4096;
    uint64_t len = (2 << 20) + 1;
    struct hf3fs_ior ior;
    hf3fs_iorcreate4(&ior, "/mnt/hf3fs", 64, true, 0, 0, -1, 0);
    int fd = open("/mnt/hf3fs/data/file.bin", O_RDONLY);
    hf3fs_reg_fd(fd, 0);

    // Existing GPU pointer from framework
    void* gpu_ptr;  // e.g., from PyTorch, TensorFlow, or cudaMalloc
    gpu_ptr = (char*)gpu_malloc(buffer_size + 12345) + 12345;

    // Generate UUID for this iov
    uint8_t uuid[16];
    generate_uuid(uuid);

    // Wrap the existing GPU memory
    struct hf3fs_iov iov;
    int ret = hf3fs_iovwrap_gpu(&iov, gpu_ptr, uuid, "/mnt/hf3fs", buffer_size, 0, gpu_device_id);
    if (ret != 0) {
        fprintf(stderr, "Failed to wrap GPU memory: %d\n", ret);
        return ret;
    }

    // Use for I/O (same as above)
    hf3fs_prep_io(&ior, &iov, true, gpu_ptr, fd, offset, len, NULL);
    hf3fs_submit_ios(&ior);

    struct hf3fs_cqe cqe;
    hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL);
    expect_bytes_of("/mnt/hf3fs/data/file.bin", offset, gpu_ptr, len);

    // Cleanup - only releases RDMA registration, does NOT free GPU memory
    hf3fs_iovdestroy_gpu(&iov);
    expect_bytes_of("/mnt/hf3fs/data/file.bin", offset, gpu_ptr, len);
    hf3fs_dereg_fd(fd);
    hf3fs_iordestroy(&ior);
    return cqe.result == (int64_t)len ? 0 : 1;
}
