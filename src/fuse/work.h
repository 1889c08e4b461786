// Work on an object's bytes: keeps the object alive, and has its gate.
#pragma once

#include "fuse/file_system.h"
#include "store/gate.h"

namespace gshm::core::fuse {

class FileSystem::Work {
public:
    // kKept: an open file keeps the object, and the kernel does not close it meanwhile.
    enum Keeping { kKept, kPin, kPinForWriting };
    Work(Backend& backend, Object* worked_on, Keeping keeping) REQUIRES(store_lock)
        : object(worked_on), id(worked_on->id), gate(Files::gate(*worked_on)), backend_(backend), keeping_(keeping) {
        if (keeping_ != kKept) backend_.files().pin(*object, access());
    }
    ~Work() EXCLUDES(store_lock) {
        if (keeping_ == kKept) return;
        StoreLock lock(backend_.store_mutex());
        backend_.files().unpin(*object, access());
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

    Object* const object;  // its fields under the store lock only
    const NodeId id;
    const std::shared_ptr<Gate> gate;

    // Does not change while the gate is held.
    DeviceIndex device() const { return gate->device; }

private:
    Access access() const { return keeping_ == kPinForWriting ? Access::write : Access::read; }

    Backend& backend_;
    Keeping keeping_;
};

}  // namespace gshm::core::fuse
