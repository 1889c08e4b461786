// Self-describing bytes: each is derived from a seed and its offset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace gshm::core::test {

constexpr uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
    value = (value ^ value >> 27) * 0x94D049BB133111EB;
    return value ^ value >> 31;
}

// The bytes from `offset` on.
inline void put_pattern(std::span<char> into, uint64_t seed, uint64_t offset = 0) {
    for (size_t done = 0; done < into.size();) {
        const uint64_t at = offset + done;
        const uint64_t word = mix(seed ^ mix(at / 8));
        const size_t skipped = at % 8;
        const size_t bytes = std::min(into.size() - done, 8 - skipped);
        std::memcpy(into.data() + done, reinterpret_cast<const char*>(&word) + skipped, bytes);
        done += bytes;
    }
}

inline std::string pattern(size_t bytes, uint64_t seed, uint64_t offset = 0) {
    std::string made(bytes, '\0');
    put_pattern(made, seed, offset);
    return made;
}

// The index of the first byte that differs from the pattern; the size if there is none.
inline size_t first_wrong(std::span<const char> bytes, uint64_t seed, uint64_t offset = 0) {
    char expected[4096];
    for (size_t done = 0; done < bytes.size();) {
        const size_t piece = std::min(bytes.size() - done, sizeof expected);
        put_pattern({expected, piece}, seed, offset + done);
        if (std::memcmp(bytes.data() + done, expected, piece) != 0) {
            return done +
                   static_cast<size_t>(std::mismatch(expected, expected + piece, bytes.data() + done).first - expected);
        }
        done += piece;
    }
    return bytes.size();
}

// A deterministic sequence for each seed.
class Random {
public:
    explicit Random(uint64_t seed) : state_(mix(seed)) {}
    uint64_t next() { return state_ = mix(state_); }
    uint64_t below(uint64_t bound) { return next() % bound; }

private:
    uint64_t state_;
};

}  // namespace gshm::core::test
