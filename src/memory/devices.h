// The interface to the devices: each has a thread for slow calls, a thread for freeing memory, and its health.
#pragma once

#include <functional>

#include "base/store_lock.h"
#include "device/device.h"
#include "store/node.h"

namespace gshm::core {

class FreedExtents;

class Devices {
public:
    // `work` runs in the thread of the device, then `done` runs in the loop with its result. An error that means that
    // the device is lost first marks it as failed.
    using Work = std::move_only_function<Status(Device&)>;
    using Done = std::move_only_function<void(Status)>;

    virtual ~Devices() = default;
    virtual Device& device(DeviceIndex index) = 0;
    // ENODEV with the reason after the device has failed.
    virtual Status check(DeviceIndex index) const REQUIRES_SHARED(store_lock) = 0;
    // An error that means that the device is lost marks it as failed.
    virtual void report(DeviceIndex index, const Error& error) REQUIRES(store_lock) = 0;
    virtual void submit(DeviceIndex index, Work work, Done done) = 0;
    // The same in the second thread of the device, which frees memory and never waits for other work.
    virtual void submit_reclaim(DeviceIndex index, Work work, Done done) = 0;
    // Returns when all memory submitted so far is freed. From any thread but the loop's and the reclaimer's.
    virtual void wait_for_reclaimed(DeviceIndex index) EXCLUDES(store_lock) = 0;
    virtual FreedExtents& freed() = 0;
    // By its limit alone, with freed memory that is kept.
    virtual uint64_t free_bytes(DeviceIndex) const { return 0; }
    // Bytes that stay free for other programs.
    virtual uint64_t reserve_bytes(DeviceIndex) const { return 0; }
};

// Replaces the error by "gshmd has reached its limit of N open descriptors" if that is the cause.
Error explain_descriptor_limit(Error error);

}  // namespace gshm::core
