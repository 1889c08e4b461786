// Host memory: one shared-memory file per extent.
#pragma once

#include "device/device.h"

namespace gshm {

class HostDevice final : public Device {
public:
    // With huge_pages, extents are files of a private, detached tmpfs with huge=always where this process may make
    // one (root), since a mount of ours reads and writes them faster than ordinary tmpfs; else they are memfds.
    // capacity_bytes 0: half of the machine's memory, as tmpfs takes.
    static Result<std::unique_ptr<HostDevice>> create(uint64_t capacity_bytes, bool huge_pages);

    const DeviceInfo& info() const override { return info_; }
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override;

private:
    HostDevice() = default;
    Result<UniqueFd> make_file() const;

    DeviceInfo info_;
    UniqueFd tmpfs_;  // root of the private tmpfs; empty: memfds
};

}  // namespace gshm
