// What the mount sees of the daemon.
#pragma once

#include "fuse/backend.h"

namespace gshm {

class Server;

class MountBackend final : public fuse::Backend {
public:
    MountBackend(Server& server, std::string runtime_dir);

    Turn enter() override;
    Files& files() override { return files_; }
    Result<std::shared_ptr<Extent>> allocate(DeviceIndex device, uint64_t bytes, bool compressible) override;
    size_t device_count() override;
    Device& device(DeviceIndex device) override;
    uint64_t used_bytes(DeviceIndex device) override;
    Status check(DeviceIndex device) override;
    void report(DeviceIndex device, const Error& error) override;
    void appeared(const Node& node) override;
    const std::string& runtime_dir() const override { return runtime_dir_; }

private:
    Server& server_;
    Files files_;
    std::string runtime_dir_;
};

}  // namespace gshm
