#include "base/clock.h"

#include <ctime>

namespace gshm::core {

int64_t SystemClock::now_ns() const {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gshm::core
