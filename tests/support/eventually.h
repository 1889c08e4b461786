// Effects of other processes and of the kernel that have no event.
#pragma once

#include <chrono>
#include <thread>

namespace gshm::core::test {

// Polls until the condition holds; it is evaluated once for each look, and what the last look has found counts. False after two
// minutes' worth of looks, which only a broken product reaches, also on a busy machine with a sanitizer.
template <typename Condition>
bool eventually(Condition condition) {
    for (int looks = 0; looks < 24'000; ++looks) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(looks < 100 ? 1 : 5));
    }
    return false;
}

}  // namespace gshm::core::test
