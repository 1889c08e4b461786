// What the mount sees of the daemon.
#pragma once

#include "fuse/backend.h"

namespace gshm {

class Server;

struct MountSettings {
    std::string runtime_dir;
    bool passthrough = true;  // where the kernel has it
    bool io_uring = false;    // likewise; such a mount ends with the daemon
};

class MountBackend final : public fuse::Backend {
public:
    MountBackend(Server& server, MountSettings settings);

    Turn enter() override;
    Files& files() override { return files_; }
    Result<std::shared_ptr<Extent>> allocate(DeviceIndex device, uint64_t bytes, bool compressible) override;
    std::unique_ptr<Wait> wait_for_room(DeviceIndex device, NodeId waiting) override;
    bool is_worth_waiting(DeviceIndex device) override;
    uint64_t begin_move(DeviceIndex device, uint64_t bytes) override;
    void end_move(DeviceIndex device, uint64_t move, bool freed) override;
    size_t device_count() override;
    Device& device(DeviceIndex device) override;
    uint64_t used_bytes(DeviceIndex device) override;
    Status check(DeviceIndex device) override;
    void report(DeviceIndex device, const Error& error) override;
    void mark(const Done& done) override;
    Status record() override;
    bool can_record() const override;
    const std::string& runtime_dir() const override { return settings_.runtime_dir; }
    bool may_pass_through() const override { return settings_.passthrough; }
    bool may_use_io_uring() const override { return settings_.io_uring; }

private:
    Server& server_;
    Files files_;
    MountSettings settings_;
};

}  // namespace gshm
