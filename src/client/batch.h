// Batches that need several messages.
#pragma once

#include <utility>
#include <vector>

#include "base/limits.h"

namespace gshm::core::client {

inline constexpr size_t kChunkBytes = limits::kMessageBytes - (16 << 10);

// Splits [0, count) into parts that fit a message, by the number of elements and by their bytes.
template <typename BytesOf>
std::vector<std::pair<size_t, size_t>> split(size_t count, size_t most, BytesOf&& bytes_of) {
    std::vector<std::pair<size_t, size_t>> parts;
    size_t begin = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        size_t more = bytes_of(i);
        if (i > begin && (i - begin == most || bytes + more > kChunkBytes)) {
            parts.emplace_back(begin, i);
            begin = i;
            bytes = 0;
        }
        bytes += more;
    }
    if (count > begin) parts.emplace_back(begin, count);
    return parts;
}

}  // namespace gshm::core::client
