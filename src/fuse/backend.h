// The mount's interface to the daemon.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "base/store_lock.h"
#include "device/device.h"
#include "memory/move.h"
#include "memory/tiers.h"
#include "store/files.h"

namespace gshm::core::fuse {

class Backend {
public:
    virtual ~Backend() = default;

    // No slow operation while it is held.
    virtual StoreMutex& store_mutex() = 0;
    virtual Files& files() REQUIRES(store_lock) = 0;

    virtual Allocator& allocator() = 0;
    virtual Mover& mover() = 0;
    // Null: no object is ever evicted.
    virtual Tiers* tiers() { return nullptr; }
    virtual size_t device_count() = 0;
    virtual Device& device(DeviceIndex device) = 0;
    virtual uint64_t used_bytes(DeviceIndex device) = 0;
    // To allocations. May ask the driver.
    virtual uint64_t available_bytes(DeviceIndex index) EXCLUDES(store_lock) {
        const uint64_t capacity = device(index).info().capacity_bytes;
        return capacity - std::min(capacity, used_bytes(index));
    }
    // ENODEV once the device has failed.
    virtual Status check(DeviceIndex device) REQUIRES(store_lock) = 0;
    // From any thread: if the error means that the device is lost, the device has failed from now on.
    virtual void report(DeviceIndex device, const Error& error) = 0;
    // A request of that user begins in this thread.
    virtual void begin(uid_t) EXCLUDES(store_lock) {}
    // A request of the kernel that must not be repeated, was executed, and made a node (0: none). A later daemon
    // answers it without executing it again. The note of the request `answered` (0: none) is no longer needed.
    struct Done {
        uint64_t request = 0;
        NodeId node = 0;
        uint64_t answered = 0;
    };
    // With or without the store lock. Noted with the next record().
    virtual void mark(const Done& done) = 0;
    // With or without the store lock. All changes so far outlive gshmd when this returns.
    virtual Status record() = 0;
    virtual bool can_record() const = 0;
    // The runtime folder, by which clients find this daemon.
    virtual const std::string& runtime_dir() const = 0;
    // Distinguishes the nodes from those of another store that had the same ids.
    virtual uint32_t generation() const { return 0; }
    virtual bool may_pass_through() const = 0;
    virtual bool may_use_io_uring() const = 0;
};

}  // namespace gshm::core::fuse
