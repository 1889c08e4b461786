// Durations, counted in buckets: for histograms of the metrics.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "base/thread_blocks.h"

namespace gshm::core {

// Upper bounds, inclusive; longer durations are in a last bucket without a bound.
inline constexpr std::array<uint64_t, 17> kDurationBoundsNs = {
    5'000,     10'000,     25'000,     50'000,     100'000,     250'000,     500'000,     1'000'000,    2'500'000,
    5'000'000, 10'000'000, 25'000'000, 50'000'000, 100'000'000, 250'000'000, 500'000'000, 1'000'000'000};

// In a block of ThreadBlocks.
struct CountedDurations {
    std::array<Count, kDurationBoundsNs.size() + 1> counts;
    Count sum_ns;

    void add(uint64_t ns) {
        size_t bucket = 0;  // most are short
        while (bucket < kDurationBoundsNs.size() && ns > kDurationBoundsNs[bucket]) ++bucket;
        increase(counts[bucket]);
        increase(sum_ns, ns);
    }
};

// The sum over threads.
struct Durations {
    std::array<uint64_t, kDurationBoundsNs.size() + 1> counts = {};
    uint64_t sum_ns = 0;

    void add(const CountedDurations& counted) {
        for (size_t i = 0; i < counts.size(); ++i) counts[i] += counted.counts[i].load(std::memory_order_relaxed);
        sum_ns += counted.sum_ns.load(std::memory_order_relaxed);
    }
    uint64_t count() const {
        uint64_t sum = 0;
        for (uint64_t in_bucket : counts) sum += in_bucket;
        return sum;
    }
};

inline uint64_t steady_now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace gshm::core
