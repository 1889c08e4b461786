// Sizes as text: 4096, 8M; whole numbers with K, M, G or T, powers of 1024.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace gshm::core {

Result<uint64_t> parse_size(std::string_view text);

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Rounding down and up for powers of two, without a division.
constexpr uint64_t align_down(uint64_t value, uint64_t unit) {
    return value & ~(unit - 1);
}
constexpr uint64_t align_up(uint64_t value, uint64_t unit) {
    return align_down(value + unit - 1, unit);
}

}  // namespace gshm::core
