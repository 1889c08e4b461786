#include "io/staging.h"

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "base/size.h"

namespace gshm::core::io {

Result<std::shared_ptr<Staging>> Staging::create(Device& device, size_t size_bytes) {
    const size_t size = round_up(std::max(size_bytes, kLargeChunkBytes), kLargeChunkBytes);
    // Aligned more strictly than mmap() does, so that the kernel can use huge pages.
    auto memory = PinnedMemory::map(size, {.alignment = kLargeChunkBytes, .numa_node = device.info().numa_node});
    if (!memory) return fail(ENOMEM, "no memory for {} bytes of staging", size);
    std::shared_ptr<Staging> made(new Staging(device, *std::move(memory)));
    if (auto pinned = made->pin(); !pinned) {
        log_warning("{} MiB of staging memory cannot be pinned, copies to and from {} will be slower: {}. Raise "
                    "RLIMIT_MEMLOCK (ulimit -l; LimitMEMLOCK= of the service) or make the staging memory smaller",
                    size >> 20, device.info().name, pinned.error().message);
    }
    return made;
}

Staging::Staging(Device& device, PinnedMemory memory)
    : device_(device), memory_(std::move(memory)), slabs_(memory_.size() / kLargeChunkBytes) {}

Chunk Staging::take(size_t bytes, bool any, Listener& listener, User user) {
    size_t kind = 0;
    while (kind + 1 < kKinds && kChunkBytes[kind] < bytes) ++kind;
    MutexLock lock(mutex_);
    Chunk chunk = take_of(kind, user);
    while (!chunk && any && kind > 0) chunk = take_of(--kind, user);
    if (chunk) {
        taken_bytes_ += chunk.bytes;
        held_bytes_[user] += chunk.bytes;
    } else if (std::ranges::find(listeners_, &listener) == listeners_.end()) {
        listeners_.push_back(&listener);
    }
    return chunk;
}

// A user without chunks is not refused: no chunk of its own would come back to notify it.
bool Staging::may_take(size_t kind, User user) const {
    auto held = held_bytes_.find(user);
    if (user == kAlone || held == held_bytes_.end()) return true;
    const size_t free = memory_.size() - taken_bytes_;
    return kChunkBytes[kind] <= free && held->second + kChunkBytes[kind] <= 3 * (free - kChunkBytes[kind]);
}

// Partially used slabs first, so that others stay whole.
Chunk Staging::take_of(size_t kind, User user) {
    if (!may_take(kind, user)) return {};
    size_t whole = slabs_.size();
    for (size_t i = 0; i < slabs_.size(); ++i) {
        Slab& slab = slabs_[i];
        if (slab.taken == 0) whole = std::min(whole, i);
        else if (slab.kind == kind && slab.taken < kLargeChunkBytes / kChunkBytes[kind]) return take_from(i);
    }
    if (whole == slabs_.size()) return {};
    Slab& slab = slabs_[whole];
    slab.kind = kind;
    const size_t chunks = kLargeChunkBytes / kChunkBytes[kind];
    for (size_t i = 0; i < std::size(slab.free); ++i) {
        const size_t here = chunks > i * 64 ? std::min<size_t>(chunks - i * 64, 64) : 0;
        slab.free[i] = here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1;
    }
    return take_from(whole);
}

Chunk Staging::take_from(size_t index) {
    Slab& slab = slabs_[index];
    size_t word = 0;
    while (slab.free[word] == 0) ++word;
    const auto bit = static_cast<size_t>(std::countr_zero(slab.free[word]));
    slab.free[word] &= slab.free[word] - 1;
    ++slab.taken;
    const size_t bytes = kChunkBytes[slab.kind];
    return {memory_.data() + index * kLargeChunkBytes + (word * 64 + bit) * bytes, bytes};
}

void Staging::give(Chunk chunk, User user) {
    const auto offset = static_cast<size_t>(chunk.data - memory_.data());
    MutexLock lock(mutex_);
    Slab& slab = slabs_[offset / kLargeChunkBytes];
    const size_t number = offset % kLargeChunkBytes / kChunkBytes[slab.kind];
    slab.free[number / 64] |= uint64_t{1} << (number % 64);
    --slab.taken;
    taken_bytes_ -= chunk.bytes;
    if (auto held = held_bytes_.find(user); (held->second -= chunk.bytes) == 0) held_bytes_.erase(held);
    // Under the lock, so that no call follows forget().
    for (Listener* listener : listeners_) listener->chunk_is_back();
    listeners_.clear();
}

void Staging::forget(Listener& listener) {
    MutexLock lock(mutex_);
    std::erase(listeners_, &listener);
}

}  // namespace gshm::core::io
