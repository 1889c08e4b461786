#include "fuse/pinned.h"

#include "base/log.h"

namespace gshm::core::fuse {

Pinned::Pinned(Backend& backend, size_t bytes) {
    // All of it is there from the start, and stays where that is allowed. A daemon that is killed gets no page any more:
    // a request that is on its way into one would be answered by the kernel itself, with EIO.
    auto memory = PinnedMemory::map(bytes, {.populate = true});
    if (!memory) return;
    memory_ = *std::move(memory);
    // Once for all GPUs.
    auto count = static_cast<DeviceIndex>(backend.device_count());
    for (DeviceIndex i = 0; i < count && !memory_.is_pinned(); ++i) {
        if (!backend.device(i).info().pins) continue;
        if (auto pinned = memory_.pin(backend.device(i)); !pinned)
            log_warning("copies are slower: {}", pinned.error().message);
    }
}

}  // namespace gshm::core::fuse
