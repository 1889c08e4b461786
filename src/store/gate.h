// The lock of an object's bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>

namespace gshm::core {

class Extent;

// Threads that read or write an object's bytes hold the gate shared, so that none writes to memory that is being
// replaced. The thread that replaces the memory holds it exclusively. Taken before the store lock, never after it.
struct Gate {
    std::shared_mutex mutex;
    std::shared_ptr<Extent> memory;  // null: no memory
    uint64_t offset = 0;
    bool in_slab = false;                  // the memory is a slab: the bytes after the object belong to other objects
    std::atomic<int> writers = 0;          // threads that are writing
    std::atomic<uint64_t> size_bytes = 0;  // the size of the object in the store
    std::atomic<uint32_t> device = 0;      // likewise; does not change while the gate is held
};

}  // namespace gshm::core
