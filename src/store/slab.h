// Allocates ranges of one extent: best fit, with free neighbours merged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace gshm::core {

class Slab {
public:
    explicit Slab(uint64_t size_bytes) { insert(0, size_bytes); }
    // Without free ranges.
    Slab() = default;

    // The offset of a range of at least `bytes`, a multiple of limits::kObjectAlignment.
    std::optional<uint64_t> take(uint64_t bytes);
    // Frees a range of rounded(bytes).
    void give_back(uint64_t offset, uint64_t bytes);

    uint64_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

    static uint64_t rounded(uint64_t bytes);

private:
    void insert(uint64_t offset, uint64_t bytes);
    void erase(std::map<uint64_t, uint64_t>::iterator range);

    std::map<uint64_t, uint64_t> by_offset_;           // free: offset -> bytes
    std::set<std::pair<uint64_t, uint64_t>> by_size_;  // free: (bytes, offset)
};

}  // namespace gshm::core
