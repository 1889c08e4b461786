// Allocates GPU memory in a process that outlives this one, so that its fabric handles do too.
#pragma once

#include "cuda/api.h"
#include "device/device.h"

namespace gshm::core {

// Safe from any thread.
class FabricMaker {
public:
    virtual ~FabricMaker() = default;

    struct Wanted {
        cuda::CUuuid device = {};
        uint64_t size_bytes = 0;
        int handle_types = 0;  // CUDA's bits
        bool compressible = false;
        bool rdma_capable = false;
    };
    struct Made {
        UniqueFd fd;
        FabricHandle handle = {};
        cuda::CUresult result = cuda::kSuccess;  // on failure the members below are not set
    };
    // An error: no such process is available.
    virtual Result<Made> make(const Wanted& wanted) = 0;
    // Returns when that process has released the memory.
    virtual void release(const FabricHandle& handle) = 0;
    // The handle can still be imported.
    virtual bool holds(const FabricHandle& handle) = 0;
};

}  // namespace gshm::core
