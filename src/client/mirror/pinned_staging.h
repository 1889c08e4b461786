// Host memory for mirrors: pinned once, cached when it comes back, since pinning costs more than the copies it is for.
// Safe from any thread.
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
    // The process's; a forked child has one of its own.
    static PinnedStaging& instance();

    // Whose has taken it until it is given back. Begins at a page; what is in it is not defined.
    struct Block {
        std::byte* data = nullptr;
        size_t bytes = 0;
        Device* device = nullptr;
    };

    // At least so many bytes, pinned for the device; where that is refused not pinned, with a warning, and only slower.
    // The device must live as long as the process.
    Result<Block> take(Device& device, size_t bytes) EXCLUDES(mutex_);
    void give(Block block) EXCLUDES(mutex_);
    // How many bytes that nobody uses are kept at most, from now on.
    void keep_at_most(size_t bytes) EXCLUDES(mutex_);

private:
    // Small blocks are cut from regions of this size: a registration of its own would cost as much as hundreds of copies.
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
    // Takes out what is beyond the bound, oldest first, to be unmapped without the lock.
    std::vector<PinnedMemory> excess() REQUIRES(mutex_);

    const uint64_t generation_;
    Mutex mutex_;
    std::map<Key, std::vector<std::byte*>> small_ GUARDED_BY(mutex_);  // cut, and free; never unmapped
    std::list<Free> large_ GUARDED_BY(mutex_);                        // free, oldest first
    std::vector<PinnedMemory> cut_ GUARDED_BY(mutex_);                // what small_ is cut from
    std::map<std::byte*, PinnedMemory> regions_ GUARDED_BY(mutex_);   // large ones, free or not
    size_t kept_ GUARDED_BY(mutex_) = 0;                              // in large_
    size_t most_ GUARDED_BY(mutex_) = kKeptBytes;
    bool warned_ GUARDED_BY(mutex_) = false;
};

}  // namespace gshm::core::client
