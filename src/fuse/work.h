// Work on an object's bytes: keeps the object alive, and has its gate.
#pragma once

#include "fuse/file_system.h"
#include "store/account_limits.h"
#include "store/gate.h"

namespace gshm::core::fuse {

class FileSystem::Work {
public:
    // kKept: an open file keeps the object, and the kernel does not close it meanwhile.
    enum Keeping { kKept, kPin, kPinForWriting };
    Work(Backend& backend, Object* worked_on, Keeping keeping) REQUIRES(store_lock)
        : object(worked_on),
          id(worked_on->id),
          gate(Files::gate(*worked_on)),
          is_limited(backend.files().store().limits().any()),
          backend_(backend),
          keeping_(keeping) {
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
    const bool is_limited;  // there are limits on accounts, perhaps on others than this object's

    // Does not change while the gate is held.
    DeviceIndex device() const { return gate->device; }

private:
    Access access() const { return keeping_ == kPinForWriting ? Access::write : Access::read; }

    Backend& backend_;
    Keeping keeping_;
};

// A file that grows counts with its new size before it has the bytes: EDQUOT comes before a byte is written, and two
// files that grow at the same time do not exceed a limit together. Destroyed after the size was set.
class FileSystem::Growth {
public:
    explicit Growth(Backend& backend) : backend_(backend) {}
    ~Growth() EXCLUDES(store_lock) {
        if (object_ == nullptr) return;
        StoreLock lock(backend_.store_mutex());
        backend_.files().store().limits().end_growth(*object_);
    }
    Growth(const Growth&) = delete;
    Growth& operator=(const Growth&) = delete;

    Status begin(const Work& work, uint64_t end) EXCLUDES(store_lock) {
        if (!work.is_limited) return {};
        StoreLock lock(backend_.store_mutex());
        return begin_locked(work, end);
    }
    Status begin_locked(const Work& work, uint64_t end) REQUIRES(store_lock) {
        if (TRY(backend_.files().store().limits().begin_growth(*work.object, end))) object_ = work.object;
        return {};
    }

private:
    Backend& backend_;
    Object* object_ = nullptr;  // null: it does not grow, or there are no limits
};

}  // namespace gshm::core::fuse
