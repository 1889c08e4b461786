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
    // 0 threads: as many as are useful here.
    static Result<std::unique_ptr<ClientLoops>> create(unsigned threads);
    ~ClientLoops();

    // The one for a further connection.
    EventLoop& next();
    // Runs the task in that loop when the others have seen all packets that had come before.
    void after_others(EventLoop& loop, EventLoop::Task task);
    // Returns when no thread serves anything any more. Packets that were read are answered.
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
