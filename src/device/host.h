// Host memory: one sealed memfd per extent.
#pragma once

#include "device/device.h"

namespace gshm {

class HostDevice final : public Device {
public:
    // capacity_bytes 0: half of the machine's memory, as tmpfs takes.
    static Result<std::unique_ptr<HostDevice>> create(uint64_t capacity_bytes);

    const DeviceInfo& info() const override { return info_; }
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override;

private:
    HostDevice() = default;

    DeviceInfo info_;
};

}  // namespace gshm
