// Host memory: a sealed memfd per extent of fixed size; for resizable extents files of a private tmpfs, which are
// opened on demand (or memfds without seals, if mounting is not permitted).
#pragma once

#include <optional>

#include "base/mutex.h"
#include "device/host_folder.h"
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
    Result<std::unique_ptr<Extent>> restore_file(uint64_t key) override EXCLUDES(mutex_);

    uint64_t unaccounted_bytes() override EXCLUDES(mutex_);
    // Also bounds the private tmpfs, whose files the kernel writes by itself.
    uint64_t set_bound(uint64_t limit_bytes) override EXCLUDES(mutex_);

    // The private tmpfs, whose files are counted together; empty: none (yet). Owned by the device.
    std::optional<int> folder() EXCLUDES(mutex_);
    // Uses that of an earlier process. Called before the first file is made.
    Status adopt_folder(UniqueFd folder) EXCLUDES(mutex_);
    // Removes the files of earlier processes that have no key, or one that is not in use.
    void remove_files(const std::function<bool(uint64_t key)>& is_used) EXCLUDES(mutex_);

private:
    HostDevice() = default;
    Result<std::unique_ptr<Extent>> make_file() EXCLUDES(mutex_);
    std::shared_ptr<HostFolder> folder_now() EXCLUDES(mutex_);

    DeviceInfo info_;
    // The bytes of all files: shared with them, since they may outlive the device. It has no limit.
    const std::shared_ptr<Budget> files_ = std::make_shared<Budget>(UINT64_MAX);
    Mutex mutex_;
    uint64_t bound_bytes_ GUARDED_BY(mutex_) = 0;
    bool folder_tried_ GUARDED_BY(mutex_) = false;
    std::shared_ptr<HostFolder> folder_ GUARDED_BY(mutex_);  // null: no file yet, or not permitted
};

}  // namespace gshm::core
