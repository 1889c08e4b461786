// The threads that serve clients. A connection belongs to one of them.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/loop.h"

namespace gshm::core {

class ClientLoops {
public:
    // 0: the default for the machine's cores.
    static Result<std::unique_ptr<ClientLoops>> create(unsigned threads);
    ~ClientLoops();

    // The loop for a new connection.
    EventLoop& next();
    // Runs the task in that loop after the loops have read all packets that arrived before this call.
    void after_arrived(EventLoop& loop, EventLoop::Task task);
    // Ends the threads. Packets already read are answered.
    void stop();

private:
    ClientLoops() = default;
    struct Loop {
        std::unique_ptr<EventLoop> loop;
        std::thread thread;
    };
    std::vector<Loop> loops_;
    std::atomic<size_t> next_ = 0;
};

}  // namespace gshm::core
