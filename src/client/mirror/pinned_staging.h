// Host memory for mirrors: pinned once and cached after its return, since pinning costs more than the copies.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "device/pinned_memory.h"

namespace gshm::core::client {

class PinnedStaging {
public:
    // The instance of the process. A forked child has its own.
    static PinnedStaging& instance();

    // Owned by the taker until give(). Page-aligned, with undefined contents.
    struct Block {
        std::byte* data = nullptr;
        size_t bytes = 0;
        Device* device = nullptr;
    };

    // At least that many bytes, pinned for the device. If pinning is refused, the memory is not pinned and slower, and
    // a warning is logged. The device must live until the process ends.
    Result<Block> take(Device& device, size_t bytes) EXCLUDES(mutex_);
    void give(Block block) EXCLUDES(mutex_);
    // The maximum of unused bytes to keep from now on.
    void keep_at_most(size_t bytes) EXCLUDES(mutex_);

private:
    // Small blocks are cut from regions of this size: a separate registration would cost as much as hundreds of copies.
    static constexpr size_t kRegionBytes = size_t{4} << 20;
    static constexpr size_t kLargestCut = kRegionBytes / 4;
    static constexpr size_t kKeptBytes = size_t{1} << 30;

    struct Key {
        Device* device;
        size_t bytes;
        auto operator<=>(const Key&) const = default;
    };
    struct Free {
        Key key;
        std::byte* data;
    };

    PinnedStaging();
    static size_t rounded(size_t bytes);
    Result<PinnedMemory> map(Device& device, size_t bytes) EXCLUDES(mutex_);
    // Removes blocks beyond the bound, oldest first, for the caller to unmap without the lock.
    std::vector<PinnedMemory> excess() REQUIRES(mutex_);

    const uint64_t generation_;
    Mutex mutex_;
    std::map<Key, std::vector<std::byte*>> small_ GUARDED_BY(mutex_);  // free blocks cut from cut_; never unmapped
    std::list<Free> large_ GUARDED_BY(mutex_);                         // free, oldest first
    std::vector<PinnedMemory> cut_ GUARDED_BY(mutex_);                 // the regions of small_
    std::map<std::byte*, PinnedMemory> regions_ GUARDED_BY(mutex_);    // large blocks, free or not
    size_t kept_ GUARDED_BY(mutex_) = 0;                               // bytes in large_
    size_t most_ GUARDED_BY(mutex_) = kKeptBytes;
    bool warned_ GUARDED_BY(mutex_) = false;
};

}  // namespace gshm::core::client
