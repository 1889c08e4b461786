// The devices of this process, found when they are first needed and kept for its life.
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

    // "host", "cuda:N" with this process's ordinals, "cuda" for the first; in general a spec without a limit.
    Result<Device*> by_name(std::string_view name) EXCLUDES(mutex_);
    // What the daemon calls by this name and uuid.
    Result<Device*> by_uuid(std::string_view uuid, std::string_view name_at_daemon) EXCLUDES(mutex_);
    // All that are found without being named: GPUs first, then host.
    std::vector<DeviceInfo> infos() EXCLUDES(mutex_);

private:
    struct Known {
        bool searched = false;
        std::vector<std::unique_ptr<Device>> devices;
        std::map<std::string, Device*, std::less<>> by_spec;  // as they were asked for
    };

    // Of that kind, with all that can be found in it.
    Result<Known*> search(const DeviceKind& kind) REQUIRES(mutex_);
    Result<Device*> find(const DeviceKind& kind, std::string_view uuid, std::string_view name) REQUIRES(mutex_);

    Mutex mutex_;
    std::map<const DeviceKind*, Known> known_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
