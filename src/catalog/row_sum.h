// The checksum of the columns of a row, in order. The checksums of all rows are added to that of the catalog, so that a
// missing, changed or outdated row is detected.
#pragma once

#include <cstdint>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gshm::core {

class RowSum {
public:
    void add(int64_t value) { mix(static_cast<uint64_t>(value)); }
    void add(std::string_view bytes) { mix(XXH3_64bits(bytes.data(), bytes.size()) + kBytes); }
    uint64_t value() const { return sum_; }

private:
    static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
    static constexpr uint64_t kBytes = 0xd6e8feb86659fd93;
    static constexpr uint64_t kSeed = 0xa0761d6478bd642f;

    void mix(uint64_t word) {
        unsigned __int128 product = static_cast<unsigned __int128>(sum_ ^ word ^ kBytes) * (kStep + 2 * ++columns_);
        sum_ = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    }

    uint64_t sum_ = kSeed;
    uint64_t columns_ = 0;
};

}  // namespace gshm::core
