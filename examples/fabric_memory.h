// GPU memory that another process allocated, mapped by its fabric handle (attribute user.fabric_handle) with driver
// calls only.
#pragma once

#include <array>
#include <cstdint>

#include "cuda_driver.h"
#include <gshm/gshm.hpp>

using FabricHandle = std::array<uint8_t, GSHM_FABRIC_HANDLE_BYTES>;

class FabricMemory {
public:
    // allocation_bytes is the size of the whole allocation, since the driver maps whole handles only. Throws
    // gshm::Exception.
    FabricMemory(const cuda::Driver& driver, FabricHandle fabric, uint64_t allocation_bytes, bool write)
        : driver_(driver), bytes_(allocation_bytes) {
        try {
            map(fabric, write);
        } catch (...) {
            release();
            throw;
        }
    }
    ~FabricMemory() { release(); }
    FabricMemory(const FabricMemory&) = delete;
    FabricMemory& operator=(const FabricMemory&) = delete;

    cuda::CUdeviceptr pointer() const { return pointer_; }
    cuda::CUdevice device() const { return device_; }  // ordinal, in this process, of the GPU that has the memory

private:
    void map(FabricHandle& fabric, bool write) {
        driver_.check("cuMemImportFromShareableHandle",
                      driver_.mem_import(&handle_, fabric.data(), cuda::kMemHandleTypeFabric));
        imported_ = true;
        cuda::CUmemAllocationProp properties = {};
        driver_.check("cuMemGetAllocationPropertiesFromHandle", driver_.mem_get_properties(&properties, handle_));
        device_ = properties.location.id;

        driver_.check("cuMemAddressReserve", driver_.mem_address_reserve(&pointer_, bytes_, 0, 0, 0));
        driver_.check("cuMemMap", driver_.mem_map(pointer_, bytes_, 0, handle_, 0));
        mapped_ = true;
        cuda::CUmemAccessDesc access = {};
        access.location = {cuda::kMemLocationTypeDevice, device_};
        access.flags = write ? cuda::kMemAccessProtReadWrite : cuda::kMemAccessProtRead;
        driver_.check("cuMemSetAccess", driver_.mem_set_access(pointer_, bytes_, &access, 1));
    }
    // Undoes the completed steps. The memory itself belongs to its owner.
    void release() {
        if (mapped_) driver_.mem_unmap(pointer_, bytes_);
        if (pointer_ != 0) driver_.mem_address_free(pointer_, bytes_);
        if (imported_) driver_.mem_release(handle_);
    }

    const cuda::Driver& driver_;
    const uint64_t bytes_;
    cuda::CUmemGenericAllocationHandle handle_ = 0;
    bool imported_ = false;
    bool mapped_ = false;
    cuda::CUdeviceptr pointer_ = 0;
    cuda::CUdevice device_ = 0;
};
