// The event loop behind the Scheduler interface of src/memory.
#pragma once

#include "daemon/loop.h"
#include "memory/scheduler.h"

namespace gshm::core {

class LoopScheduler final : public Scheduler {
public:
    explicit LoopScheduler(EventLoop& loop) : loop_(loop) {}

    void post(Task task, std::source_location caller) override { loop_.post(std::move(task), caller); }
    TimerId after(std::chrono::milliseconds delay, Task task, std::source_location caller) override {
        return loop_.after(delay, std::move(task), caller);
    }
    void cancel(const TimerId& timer) override { loop_.cancel(timer); }
    StoreMutex& store_mutex() override { return loop_.store_mutex(); }

private:
    EventLoop& loop_;
};

}  // namespace gshm::core
