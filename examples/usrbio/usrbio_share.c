/* One process reads a file into GPU memory of another: the example of 3FS's documentation, unchanged. The two processes
 * communicate through pipes and separate before either starts CUDA. */
#define _GNU_SOURCE
#include "lib/api/hf3fs_usrbio_gdr.h"
#include "support.h"

static int to_consumer[2];
static int to_owner[2];

static void send_to_consumer(hf3fs_gpu_ipc_handle_t handle) {
    if (write(to_consumer[1], &handle, sizeof handle) != sizeof handle) die("cannot send");
}

static void recv_from_owner(hf3fs_gpu_ipc_handle_t* handle) {
    if (read(to_consumer[0], handle, sizeof *handle) != sizeof *handle) die("cannot receive");
}

/* Exporting Process (GPU memory owner) */
static int own(size_t size, int device_id) {
    // Create or wrap GPU iov
    struct hf3fs_iov iov;
    hf3fs_iovcreate_gpu(&iov, "/mnt/hf3fs", size, 0, device_id);

    // Export IPC handle for sharing
    hf3fs_gpu_ipc_handle_t handle;
    int ret = hf3fs_iov_export_gpu(&iov, &handle);
    if (ret == 0) {
        // Send handle to consumer process via IPC mechanism
        send_to_consumer(handle);
    }

    char done = 0;
    if (read(to_owner[0], &done, 1) != 1) die("the consumer has failed");
    expect_bytes_of("/mnt/hf3fs/data/file.bin", 100, iov.base, size);
    hf3fs_iovdestroy_gpu(&iov);
    return ret;
}

/* Importing Process (RDMA operator) */
static int consume(size_t len) {
    uint64_t offset = 100;
    struct hf3fs_ior ior;
    hf3fs_iorcreate4(&ior, "/mnt/hf3fs", 64, true, 0, 0, -1, 0);
    int fd = open("/mnt/hf3fs/data/file.bin", O_RDONLY);
    hf3fs_reg_fd(fd, 0);

    // Receive handle from owner process
    hf3fs_gpu_ipc_handle_t handle;
    recv_from_owner(&handle);

    // Import the GPU memory
    struct hf3fs_iov iov;
    int ret = hf3fs_iov_import_gpu(&iov, &handle, "/mnt/hf3fs");
    if (ret == 0) {
        // Can now use for RDMA operations
        hf3fs_prep_io(&ior, &iov, true, iov.base, fd, offset, len, NULL);
    }

    struct hf3fs_cqe cqe;
    hf3fs_submit_ios(&ior);
    hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL);
    if (cqe.result == (int64_t)len && write(to_owner[1], "!", 1) != 1) die("cannot answer");

    // Cleanup
    hf3fs_iovdestroy_gpu(&iov);
    hf3fs_iordestroy(&ior);
    return ret;
}

int main(void) {
    size_t size = 3 << 20;
    if (pipe2(to_consumer, O_CLOEXEC) != 0 || pipe2(to_owner, O_CLOEXEC) != 0) die("no pipes");
    pid_t consumer = fork();
    if (consumer == 0) {
        close(to_consumer[1]);
        return consume(size);
    }
    close(to_owner[1]);
    int ret = own(size, 0);
    int status = -1;
    waitpid(consumer, &status, 0);
    return ret != 0 || status != 0 ? 1 : 0;
}
