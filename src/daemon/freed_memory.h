// Gives memory back to the system after sessions have ended. The allocator keeps freed memory for later use, and a session
// may have used very much: waits, events, replies.
#pragma once

#include "base/worker.h"
#include "daemon/loop.h"

namespace gshm::core {

class FreedMemory {
public:
    explicit FreedMemory(EventLoop& loop);
    // Under the store lock. What is freed a moment later is given back too.
    void session_ended();

private:
    using Clock = std::chrono::steady_clock;
    // In the worker's thread.
    void give_back();

    EventLoop& loop_;
    std::atomic<bool> is_scheduled_ = false;
    std::atomic<Clock::time_point> not_before_{};
    Worker worker_;
};

}  // namespace gshm::core
