// The devices, as this folder sees them: with a thread for slow calls, a thread for what is given back, and their health.
#pragma once

#include <functional>

#include "device/device.h"
#include "store/node.h"

namespace gshm::core {

class FreedExtents;

class Devices {
public:
    // `work` runs in the device's thread, then `done`, with its result, in the loop. An error that says that the device
    // is lost marks it so first.
    using Work = std::move_only_function<Status(Device&)>;
    using Done = std::move_only_function<void(Status)>;

    virtual ~Devices() = default;
    virtual Device& device(DeviceIndex index) = 0;
    // In one's turn: ENODEV with the reason once the device has failed.
    virtual Status check(DeviceIndex index) const = 0;
    // In the loop: an error that says that the device is lost makes it so.
    virtual void report(DeviceIndex index, const Error& error) = 0;
    virtual void submit(DeviceIndex index, Work work, Done done) = 0;
    // The same in a second thread of the device's, for what is given back to it: nothing there waits for anything.
    virtual void submit_reclaim(DeviceIndex index, Work work, Done done) = 0;
    // Returns when the memory that was given back so far is free. In any thread but the loop's and the reclaimer's.
    virtual void wait_for_reclaimed(DeviceIndex index) = 0;
    virtual FreedExtents& freed() = 0;
};

// "gshmd has reached its limit of N open descriptors" if that is so, else the error as it is.
Error explain_descriptor_limit(Error error);

}  // namespace gshm::core
