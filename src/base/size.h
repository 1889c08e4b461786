// Sizes as people write them: 4096, 8M; whole numbers with K, M, G or T, powers of 1024.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace gshm {

Result<uint64_t> parse_size(std::string_view text);

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

}  // namespace gshm
