// Sizes as text: 4096, 0x1000, 8M, 8MiB; whole numbers with K, M, G or T, powers of 1024.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gshm::core {

// EINVAL: not a size. ERANGE: more than 2^63 - 1. KB and MB are not accepted, since they are ambiguous.
Result<uint64_t> parse_size(std::string_view text);

// "512 bytes", "8.0 MiB", "136 GiB": for messages.
std::string size_text(uint64_t bytes);

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
