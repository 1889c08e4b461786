// The interface to the loop: tasks, timers and the store lock. The daemon implements it with its event loop. Tests run the tasks
// and set the time themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <source_location>
#include <utility>

#include "base/store_lock.h"

namespace gshm::core {

class Scheduler {
public:
    using Task = std::move_only_function<void()>;
    using Time = std::chrono::steady_clock::time_point;
    using TimerId = std::pair<Time, uint64_t>;

    virtual ~Scheduler() = default;
    // Runs the task in the loop, under the store lock. From any thread.
    virtual void post(Task task, std::source_location caller = std::source_location::current()) = 0;
    // In the loop.
    virtual TimerId after(std::chrono::milliseconds delay, Task task,
                          std::source_location caller = std::source_location::current()) = 0;
    virtual void cancel(const TimerId& timer) = 0;
    virtual Time now() const { return std::chrono::steady_clock::now(); }
    virtual StoreMutex& store_mutex() = 0;
};

}  // namespace gshm::core
