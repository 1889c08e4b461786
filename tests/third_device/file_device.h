// The worked example of docs/devices.md: a kind of device that is neither a GPU nor host memory. Its memory is files in a
// folder of the user's, which the CPU reaches by copies alone: an address of such memory can be told from others, and
// faults when it is followed, as a GPU's does.
//
// Nothing in src/ knows of it. Linked into gshmd and libgshm it registers itself, and `gshmd --device file:/folder` has it.
#pragma once

#include "device/kinds.h"

namespace gshm::core::test {

class FileDevice final : public Device {
public:
    // An absolute path. Its last component is the device's name: "file:NAME". capacity_bytes 0: the free space of the
    // file system.
    static Result<std::unique_ptr<FileDevice>> create(const std::string& folder, uint64_t capacity_bytes);
    // A device that only imports and restores extents of another process's device.
    static std::unique_ptr<FileDevice> create_foreign(std::string_view name, std::string_view uuid);

    const DeviceInfo& info() const override { return info_; }
    Status start() override;
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override;
    Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                            const FabricHandle* handle) override;

private:
    FileDevice() = default;

    DeviceInfo info_;
    UniqueFd folder_;  // empty: foreign
};

}  // namespace gshm::core::test
