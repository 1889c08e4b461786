// The devices of this process, opened on first use and kept until its end.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "device/kinds.h"

namespace gshm::core::client {

class LocalDevices {
public:
    static LocalDevices& instance();

    // "host", "cuda:N" with the ordinals of this process, "cuda" for the first GPU; in general a spec without a limit.
    Result<Device*> by_name(std::string_view name) EXCLUDES(mutex_);
    // The device that has this name and UUID at the daemon.
    Result<Device*> by_uuid(std::string_view uuid, std::string_view name_at_daemon) EXCLUDES(mutex_);
    // All devices that are found without a name: GPUs first, then host.
    std::vector<DeviceInfo> infos() EXCLUDES(mutex_);

private:
    struct Known {
        bool searched = false;
        std::vector<std::unique_ptr<Device>> devices;
        std::map<std::string, Device*, std::less<>> by_spec;  // by the spec that they were opened with
    };

    // The devices of a kind, after a search for all of them.
    Result<Known*> search(const DeviceKind& kind) REQUIRES(mutex_);
    Result<Device*> find(const DeviceKind& kind, std::string_view uuid, std::string_view name) REQUIRES(mutex_);

    Mutex mutex_;
    std::map<const DeviceKind*, Known> known_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
