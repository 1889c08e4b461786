// An allocation of the driver, mapped whole at an address of its own.
#pragma once

#include "cuda/driver.h"

namespace gshm::core {

// The driver requires this order of undoing, whichever step failed: unmap, free the addresses, release.
class MappedHandle {
public:
    MappedHandle(const cuda::Driver& driver, cuda::CUmemGenericAllocationHandle handle)
        : driver_(driver), handle_(handle) {}
    ~MappedHandle() {
        if (mapped_) driver_.mem_unmap(pointer_, size_);
        if (pointer_ != 0) driver_.mem_address_free(pointer_, size_);
        driver_.mem_release(handle_);
    }
    MappedHandle(const MappedHandle&) = delete;
    MappedHandle& operator=(const MappedHandle&) = delete;

    Status map(uint64_t size_bytes) {
        TRY(driver_.check("cuMemAddressReserve", driver_.mem_address_reserve(&pointer_, size_bytes, 0, 0, 0)));
        size_ = size_bytes;
        TRY(driver_.check("cuMemMap", driver_.mem_map(pointer_, size_bytes, 0, handle_, 0)));
        mapped_ = true;
        return {};
    }
    Status set_access(cuda::CUdevice device, int protection) const {
        cuda::CUmemAccessDesc access = {{cuda::kMemLocationTypeDevice, device}, protection};
        return driver_.check("cuMemSetAccess", driver_.mem_set_access(pointer_, size_, &access, 1));
    }

    cuda::CUdeviceptr pointer() const { return pointer_; }
    cuda::CUmemGenericAllocationHandle handle() const { return handle_; }

private:
    const cuda::Driver& driver_;
    cuda::CUmemGenericAllocationHandle handle_;
    cuda::CUdeviceptr pointer_ = 0;
    uint64_t size_ = 0;
    bool mapped_ = false;
};

}  // namespace gshm::core
