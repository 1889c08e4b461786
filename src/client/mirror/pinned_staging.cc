#include "client/mirror/pinned_staging.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/log.h"
#include "base/size.h"
#include "client/fork.h"

namespace gshm::core::client {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

PinnedStaging::PinnedStaging() : generation_(fork_count()) {}

// Never destroyed: mirrors may outlive main(). The memory of the parent is not mapped in a forked child, and its lock
// may be held forever there.
PinnedStaging& PinnedStaging::instance() {
    static std::atomic<PinnedStaging*> current = nullptr;
    PinnedStaging* pool = current.load(std::memory_order_acquire);
    if (pool != nullptr && pool->generation_ == fork_count()) return *pool;
    auto* made = new PinnedStaging;
    if (current.compare_exchange_strong(pool, made, std::memory_order_acq_rel)) return *made;
    delete made;
    return *pool;
}

// Small sizes are powers of two, so that few size classes suffice. Larger ones are in steps of an eighth, to waste
// little.
size_t PinnedStaging::rounded(size_t bytes) {
    bytes = std::max(bytes, kPageBytes);
    if (bytes <= kLargestCut) return std::bit_ceil(bytes);
    return round_up(bytes, std::max(std::bit_floor(bytes) / 8, kPageBytes));
}

Result<PinnedMemory> PinnedStaging::map(Device& device, size_t bytes) {
    auto mapped = PinnedMemory::map(bytes, {.alignment = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes,
                                            .numa_node = device.info().numa_node});
    if (!mapped) return fail(ENOMEM, "no memory for a mirror of {} bytes", bytes);
    auto pinned = mapped->pin(device);
    if (pinned) return mapped;
    MutexLock lock(mutex_);
    if (!std::exchange(warned_, true)) {
        log_warning("{} bytes for a mirror cannot be pinned, copies to and from {} will be slower: {}", bytes,
                    device.info().name, pinned.error().message);
    }
    return mapped;
}

Result<PinnedStaging::Block> PinnedStaging::take(Device& device, size_t bytes) {
    const Key key{&device, rounded(bytes)};
    if (key.bytes <= kLargestCut) {
        for (;;) {
            {
                MutexLock lock(mutex_);
                auto& free = small_[key];
                if (!free.empty()) {
                    Block block{free.back(), key.bytes, &device};
                    free.pop_back();
                    return block;
                }
            }
            // Two threads may each create a region. Both will be used.
            auto region = TRY(map(device, kRegionBytes));
            MutexLock lock(mutex_);
            auto& free = small_[key];
            for (size_t at = kRegionBytes; at > 0; at -= key.bytes) {
                free.push_back(region.data() + at - key.bytes);
            }
            cut_.push_back(std::move(region));
        }
    }
    {
        MutexLock lock(mutex_);
        // The newest first: its pages are more likely to be in the CPU cache.
        for (auto at = large_.rbegin(); at != large_.rend(); ++at) {
            if (at->key != key) continue;
            Block block{at->data, key.bytes, &device};
            kept_ -= key.bytes;
            large_.erase(std::next(at).base());
            return block;
        }
    }
    auto region = TRY(map(device, key.bytes));
    MutexLock lock(mutex_);
    std::byte* data = region.data();
    regions_.emplace(data, std::move(region));
    return Block{data, key.bytes, &device};
}

std::vector<PinnedMemory> PinnedStaging::excess() {
    std::vector<PinnedMemory> out;
    while (kept_ > most_) {
        auto found = regions_.find(large_.front().data);
        out.push_back(std::move(found->second));
        kept_ -= large_.front().key.bytes;
        regions_.erase(found);
        large_.pop_front();
    }
    return out;
}

void PinnedStaging::give(Block block) {
    std::vector<PinnedMemory> gone;  // unmapped after the lock is released
    {
        MutexLock lock(mutex_);
        const Key key{block.device, block.bytes};
        if (block.bytes <= kLargestCut) {
            small_[key].push_back(block.data);
            return;
        }
        large_.push_back({key, block.data});
        kept_ += block.bytes;
        gone = excess();
    }
}

void PinnedStaging::keep_at_most(size_t bytes) {
    std::vector<PinnedMemory> gone;  // unmapped after the lock is released
    {
        MutexLock lock(mutex_);
        most_ = bytes;
        gone = excess();
    }
}

}  // namespace gshm::core::client
