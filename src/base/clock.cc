#include "base/clock.h"

#include <ctime>

namespace gshm::core {

namespace {

int64_t read(clockid_t clock) {
    timespec now = {};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t SystemClock::now_ns() const {
    return read(CLOCK_REALTIME);
}

int64_t SystemClock::coarse_ns() const {
    return read(CLOCK_REALTIME_COARSE);
}

int64_t SystemClock::steady_ns() const {
    return read(CLOCK_BOOTTIME);
}

}  // namespace gshm::core
