// Host memory: one sealed memfd per extent of fixed size; files of a private tmpfs (or, where that is not permitted,
// memfds without seals) for those that change it.
#pragma once

#include <optional>

#include "base/mutex.h"
#include "device/kinds.h"

namespace gshm {

extern const DeviceKind kHostKind;

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
    Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                            const FabricHandle* handle) override;

    // The private tmpfs, whose files count together; nothing: there is none (yet). It stays the device's.
    std::optional<int> folder() EXCLUDES(mutex_);
    // That of an earlier process, before any file is asked for.
    void adopt_folder(UniqueFd folder) EXCLUDES(mutex_);

private:
    HostDevice() = default;
    Result<UniqueFd> make_file() EXCLUDES(mutex_);

    DeviceInfo info_;
    Mutex mutex_;
    bool folder_tried_ GUARDED_BY(mutex_) = false;
    UniqueFd folder_ GUARDED_BY(mutex_);  // the private tmpfs, once a file was asked for; empty: not permitted
};

}  // namespace gshm
