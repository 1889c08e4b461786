// What the mount needs of the daemon.
#pragma once

#include <memory>
#include <string>

#include "base/store_lock.h"
#include "device/device.h"
#include "memory/move.h"
#include "store/files.h"

namespace gshm::core::fuse {

class Backend {
public:
    virtual ~Backend() = default;

    // Nothing slow may be done while it is locked.
    virtual StoreMutex& store_mutex() = 0;
    virtual Files& files() REQUIRES(store_lock) = 0;

    virtual Allocator& allocator() = 0;
    virtual Mover& mover() = 0;
    virtual size_t device_count() = 0;
    virtual Device& device(DeviceIndex device) = 0;
    virtual uint64_t used_bytes(DeviceIndex device) = 0;
    // ENODEV once the device has failed.
    virtual Status check(DeviceIndex device) REQUIRES(store_lock) = 0;
    // From any thread: an error that says that the device is lost makes it so.
    virtual void report(DeviceIndex device, const Error& error) = 0;
    // A request of the kernel that must not be done twice, was done, and made a node (0: none). Whoever comes after us
    // answers it without doing it again. The note of the request `answered` (0: none) is of no use any more.
    struct Done {
        uint64_t request = 0;
        NodeId node = 0;
        uint64_t answered = 0;
    };
    // With the store lock or without it: noted with the next record().
    virtual void mark(const Done& done) = 0;
    // With the store lock or without it: what was changed so far outlives gshmd when this returns.
    virtual Status record() = 0;
    virtual bool can_record() const = 0;
    // How a client finds this daemon: its runtime folder.
    virtual const std::string& runtime_dir() const = 0;
    virtual bool may_pass_through() const = 0;
    virtual bool may_use_io_uring() const = 0;
};

}  // namespace gshm::core::fuse
