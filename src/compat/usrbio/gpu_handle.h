// The handle of 80 bytes for GPU memory: 64 bytes of handle, 8 of size, 8 of device.
//
// For an object of a daemon the 64 bytes are ours: daemon, object, and the iov's id; the device is the exporter's
// number. For memory of a program they are CUDA's and refer to a whole allocation. The rest is in the device field:
//   bits 0-5    the exporter's number of the GPU
//   bits 6-19   identifies the GPU (devices.h: gpu_fingerprint); 0: unknown, the number is used
//   bits 20-63  offset of the memory in the allocation
// 3FS writes a plain number there, which reads as one without a fingerprint and with offset 0.
#pragma once

#include <variant>

#include "iov.h"

namespace gshm::usrbio {

struct ObjectHandle {
    uint64_t instance = 0;
    uint64_t object = 0;
    Id id = {};
};

struct CudaHandle {
    std::array<uint8_t, GSHM_IPC_HANDLE_BYTES> handle = {};
    uint64_t fingerprint = 0;
    uint64_t offset = 0;
};

struct GpuHandle {
    std::variant<ObjectHandle, CudaHandle> memory;
    uint64_t size = 0;
    int gpu = 0;
};

// ENOTSUP if the offset does not fit.
Result<hf3fs_gpu_ipc_handle_t> pack(const GpuHandle& handle);
// EINVAL for a handle that no call here can have made.
Result<GpuHandle> unpack(const hf3fs_gpu_ipc_handle_t& packed);

}  // namespace gshm::usrbio
