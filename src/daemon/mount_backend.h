// The daemon's side of fuse::Backend.
#pragma once

#include "fuse/backend.h"

namespace gshm::core {

class Server;

struct MountSettings {
    std::string runtime_dir;
    bool passthrough = true;  // if the kernel has it
    bool io_uring = false;    // if the kernel has it; such a mount ends with the daemon
    uint32_t generation = 0;  // see fuse::Backend
};

class MountBackend final : public fuse::Backend {
public:
    MountBackend(Server& server, MountSettings settings);

    StoreMutex& store_mutex() override;
    Files& files() override REQUIRES(store_lock) { return files_; }
    Allocator& allocator() override;
    Mover& mover() override;
    Tiers* tiers() override;
    size_t device_count() override;
    Device& device(DeviceIndex device) override;
    uint64_t used_bytes(DeviceIndex device) override;
    uint64_t available_bytes(DeviceIndex device) override EXCLUDES(store_lock);
    Status check(DeviceIndex device) override REQUIRES(store_lock);
    void report(DeviceIndex device, const Error& error) override;
    void begin(uid_t uid) override EXCLUDES(store_lock);
    void mark(const Done& done) override;
    Status record() override;
    bool can_record() const override;
    const std::string& runtime_dir() const override { return settings_.runtime_dir; }
    uint32_t generation() const override { return settings_.generation; }
    bool may_pass_through() const override { return settings_.passthrough; }
    bool may_use_io_uring() const override { return settings_.io_uring; }

private:
    Server& server_;
    Files files_ GUARDED_BY(store_lock);
    MountSettings settings_;
};

}  // namespace gshm::core
