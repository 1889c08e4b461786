// The test data of the examples: data[i] = (i * 2 + 1337) ^ 0xDEADBEEF, or the integers 0, 1, 2, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

inline constexpr size_t kPatternCount = 262'144;
inline constexpr size_t kPatternBytes = kPatternCount * sizeof(uint32_t);  // 1 MiB

enum class Pattern { mixed, counting };

inline uint32_t pattern_at(size_t index, Pattern pattern = Pattern::mixed) {
    const auto number = static_cast<uint32_t>(index);
    return pattern == Pattern::counting ? number : (number * 2 + 1337) ^ 0xDEADBEEF;
}

inline std::vector<uint32_t> make_pattern(Pattern pattern = Pattern::mixed) {
    std::vector<uint32_t> numbers(kPatternCount);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = pattern_at(i, pattern);
    return numbers;
}

// Index of the first wrong number.
inline std::optional<size_t> first_difference(std::span<const uint32_t> numbers, Pattern pattern = Pattern::mixed) {
    for (size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] != pattern_at(i, pattern)) return i;
    return std::nullopt;
}
