// The 80 bytes that stand for GPU memory between processes: 64 of a handle, 8 of size, 8 of device.
//
// Of a daemon's object the 64 bytes are ours: which daemon, which object, the iov's id; the device is the exporter's
// number. Of a program's own memory they are CUDA's, and stand for a whole allocation, so what they lack goes into the
// device:
//   bits 0-5    the exporter's number of the GPU
//   bits 6-19   which GPU that is (devices.h: gpu_fingerprint); 0: not known, the number has to do
//   bits 20-63  where in the allocation the memory begins
// 3FS itself writes a bare number there, which reads as one without a fingerprint and with an offset of 0.
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

// ENOTSUP if the offset has no room.
Result<hf3fs_gpu_ipc_handle_t> pack(const GpuHandle& handle);
// EINVAL for what no call here can have made.
Result<GpuHandle> unpack(const hf3fs_gpu_ipc_handle_t& packed);

}  // namespace gshm::usrbio
