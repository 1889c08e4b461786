// The devices of this process, found when they are first needed and kept for its life.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "device/cuda.h"
#include "device/host.h"

namespace gshm::client {

class LocalDevices {
public:
    static LocalDevices& instance();

    // "host" or "cuda:N" with this process's ordinals.
    Result<Device*> by_name(std::string_view name) EXCLUDES(mutex_);
    // What the daemon calls by this name and uuid; an empty uuid is host.
    Result<Device*> by_uuid(std::string_view uuid, std::string_view name_at_daemon) EXCLUDES(mutex_);
    // All of them: GPUs first, then host.
    std::vector<DeviceInfo> infos() EXCLUDES(mutex_);

private:
    Result<Device*> host() REQUIRES(mutex_);
    Status find_gpus() REQUIRES(mutex_);

    Mutex mutex_;
    std::unique_ptr<HostDevice> host_ GUARDED_BY(mutex_);
    bool searched_ GUARDED_BY(mutex_) = false;
    std::vector<std::unique_ptr<CudaDevice>> gpus_ GUARDED_BY(mutex_);
};

}  // namespace gshm::client
