#include "fuse/pinned.h"

#include "base/log.h"

namespace gshm::core::fuse {

Pinned::Pinned(Backend& backend, size_t bytes) {
    // All pages are allocated at the start, and locked if that is allowed. A killed daemon gets no more pages: the
    // kernel would answer a request that it copies into a missing page with EIO.
    auto memory = PinnedMemory::map(bytes, {.populate = true});
    if (!memory) return;
    memory_ = *std::move(memory);
    // Pinning once serves all GPUs.
    auto count = static_cast<DeviceIndex>(backend.device_count());
    for (DeviceIndex i = 0; i < count && !memory_.is_pinned(); ++i) {
        if (!backend.device(i).info().pins) continue;
        if (auto pinned = memory_.pin(backend.device(i)); !pinned)
            log_warning("copies are slower: {}", pinned.error().message);
    }
}

}  // namespace gshm::core::fuse
