// A buffer for bytes in transit: pages of its own, pinned for GPUs if there are any.
#pragma once

#include <span>

#include "device/pinned_memory.h"
#include "fuse/backend.h"

namespace gshm::core::fuse {

class Pinned {
public:
    // bytes() is empty if there was no memory.
    Pinned(Backend& backend, size_t bytes);
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

    std::span<std::byte> bytes() const { return memory_.bytes(); }

private:
    PinnedMemory memory_;
};

}  // namespace gshm::core::fuse
