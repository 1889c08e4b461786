// Host memory: a sealed memfd per extent of fixed size; files of a private tmpfs (or memfds without seals, if mounting
// is not permitted) for resizable extents.
#pragma once

#include <optional>

#include "base/mutex.h"
#include "device/kinds.h"

namespace gshm::core {

extern const DeviceKind kHostKind;

class HostDevice final : public Device {
public:
    // capacity_bytes 0: half of the machine's memory, as for tmpfs.
    static Result<std::unique_ptr<HostDevice>> create(uint64_t capacity_bytes);

    const DeviceInfo& info() const override { return info_; }
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override;
    Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                            const FabricHandle* handle) override;

    uint64_t unaccounted_bytes() override EXCLUDES(mutex_);

    // The private tmpfs, whose files are counted together; empty: none (yet). Owned by the device.
    std::optional<int> folder() EXCLUDES(mutex_);
    // Uses that of an earlier process. Called before the first file is made.
    void adopt_folder(UniqueFd folder) EXCLUDES(mutex_);

private:
    HostDevice() = default;
    Result<UniqueFd> make_file() EXCLUDES(mutex_);

    DeviceInfo info_;
    // The bytes of all files: shared with them, since they may outlive the device. It has no limit.
    const std::shared_ptr<Budget> files_ = std::make_shared<Budget>(UINT64_MAX);
    Mutex mutex_;
    bool folder_tried_ GUARDED_BY(mutex_) = false;
    UniqueFd folder_ GUARDED_BY(mutex_);  // the private tmpfs, after the first file; empty: not permitted
};

}  // namespace gshm::core
