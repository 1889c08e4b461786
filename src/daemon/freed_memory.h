// Gives memory back to the system after sessions have ended. The allocator keeps freed memory for later use, and a session
// may have used very much: waits, events, replies.
#pragma once

#include "base/worker.h"
#include "daemon/loop.h"

namespace gshm::core {

class FreedMemory {
public:
    explicit FreedMemory(EventLoop& loop) : loop_(loop) {}
    // Under the store lock. What is freed a moment later is given back too.
    void session_ended();

private:
    // In the worker's thread.
    void give_back();

    EventLoop& loop_;
    std::atomic<bool> is_scheduled_ = false;
    uint64_t used_bytes_ = 0;  // after the last time; of the worker's thread
    Worker worker_;
};

}  // namespace gshm::core
