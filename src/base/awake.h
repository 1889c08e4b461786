// Waking a thread on another core takes longer than many small operations. A thread that expects more work within
// microseconds stays awake for it, if the machine has cores to spare.
#pragma once

#include <chrono>
#include <thread>

namespace gshm::core {

class StayAwake {
public:
    static constexpr std::chrono::microseconds kTime{50};

    // Work was done; more may follow.
    void extend() {
        if (has_spare_cores()) until_ = std::chrono::steady_clock::now() + kTime;
    }
    // False: the thread sleeps until it is woken.
    bool is_due() {
        if (until_ == std::chrono::steady_clock::time_point{}) return false;
        if (std::chrono::steady_clock::now() < until_) return true;
        until_ = {};
        return false;
    }

private:
    static bool has_spare_cores() {
        static const bool spare = std::thread::hardware_concurrency() >= 4;
        return spare;
    }

    std::chrono::steady_clock::time_point until_ = {};
};

}  // namespace gshm::core
