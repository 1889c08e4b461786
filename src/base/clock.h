// Time of day, behind an interface for tests.
#pragma once

#include <cstdint>

namespace gshm::core {

class Clock {
public:
    virtual ~Clock() = default;
    virtual int64_t now_ns() const = 0;  // since the epoch
    // The same, a few milliseconds behind, and for less than a lookup in memory costs.
    virtual int64_t coarse_ns() const { return now_ns(); }
    // Time since the machine's start, also while it slept. No one sets it, so it measures durations.
    virtual int64_t steady_ns() const { return now_ns(); }
};

class SystemClock final : public Clock {
public:
    int64_t now_ns() const override;
    int64_t coarse_ns() const override;
    int64_t steady_ns() const override;
};

}  // namespace gshm::core
