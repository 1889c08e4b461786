// Bytes of each device that stay free for programs outside of gshm. They outlive gshmd as its objects do.
#pragma once

#include <string>
#include <vector>

#include "daemon/device_set.h"
#include "daemon/survival.h"

namespace gshm::core {

class Reserves {
public:
    Reserves(DeviceSet& devices, Survival& survival) : devices_(devices), survival_(survival) {}

    struct Reserve {
        uint64_t bytes = 0;
        uint32_t percent = 0;  // of the device's memory, in place of `bytes`; 0: `bytes` count
    };
    static constexpr uint32_t kMostPercent = 90;

    // Those of an earlier daemon.
    void load();
    // EOPNOTSUPP: the device does not know its free bytes. EINVAL: more than it has.
    Status set(DeviceIndex device, const Reserve& reserve);
    Reserve of(DeviceIndex device) const;

private:
    uint64_t bytes_of(DeviceIndex device, const Reserve& reserve) const;
    std::string key(DeviceIndex device) const;

    DeviceSet& devices_;
    Survival& survival_;
    std::vector<Reserve> reserves_;  // by device; may be shorter
};

}  // namespace gshm::core
