#include "store/slab.h"

#include <cassert>

#include "base/limits.h"
#include "base/size.h"

namespace gshm::core {

uint64_t Slab::rounded(uint64_t bytes) {
    return round_up(bytes, limits::kObjectAlignment);
}

std::optional<uint64_t> Slab::take(uint64_t bytes) {
    bytes = rounded(bytes);
    auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) return std::nullopt;
    auto [free_bytes, offset] = *best;
    erase(by_offset_.find(offset));
    if (free_bytes > bytes) insert(offset + bytes, free_bytes - bytes);
    return offset;
}

void Slab::give_back(uint64_t offset, uint64_t bytes) {
    bytes = rounded(bytes);
    auto after = by_offset_.lower_bound(offset);
    assert(after == by_offset_.end() || offset + bytes <= after->first);
    if (after != by_offset_.end() && offset + bytes == after->first) {
        bytes += after->second;
        auto joined = after++;
        erase(joined);
    }
    if (after != by_offset_.begin()) {
        auto before = std::prev(after);
        assert(before->first + before->second <= offset);
        if (before->first + before->second == offset) {
            offset = before->first;
            bytes += before->second;
            erase(before);
        }
    }
    insert(offset, bytes);
}

void Slab::insert(uint64_t offset, uint64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
}

void Slab::erase(std::map<uint64_t, uint64_t>::iterator range) {
    by_size_.erase({range->second, range->first});
    by_offset_.erase(range);
}

}  // namespace gshm::core
