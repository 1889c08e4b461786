// Time of day, behind an interface for tests.
#pragma once

#include <cstdint>

namespace gshm::core {

class Clock {
public:
    virtual ~Clock() = default;
    virtual int64_t now_ns() const = 0;  // since the epoch
};

class SystemClock final : public Clock {
public:
    int64_t now_ns() const override;
};

}  // namespace gshm::core
