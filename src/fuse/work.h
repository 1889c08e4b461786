// One piece of work on an object's bytes: keeps the object, and knows its gate.
#pragma once

#include "fuse/file_system.h"

namespace gshm::fuse {

class FileSystem::Work {
public:
    // kept: by an open file that the kernel does not close meanwhile.
    enum Keeping { kKept, kPin };
    // In one's turn.
    Work(Backend& backend, Object* worked_on, Keeping keeping)
        : object(worked_on),
          gate(Files::gate(*worked_on)),
          device(worked_on->device),
          backend_(backend),
          pinned_(keeping == kPin) {
        if (pinned_) backend_.files().pin(*object);
    }
    // Not in one's turn.
    ~Work() {
        if (!pinned_) return;
        auto turn = backend_.enter();
        backend_.files().unpin(*object);
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

    Object* const object;  // its fields in one's turn only
    const std::shared_ptr<Gate> gate;
    const DeviceIndex device;

private:
    Backend& backend_;
    bool pinned_;
};

}  // namespace gshm::fuse
