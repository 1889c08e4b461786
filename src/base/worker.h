// One thread that executes slow calls of a device in order, so that other devices and clients do not wait for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace gshm {

class Worker {
public:
    using Task = std::move_only_function<void()>;

    Worker();
    // Executes the queued tasks, then ends.
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void submit(Task task) EXCLUDES(mutex_);

private:
    void run() EXCLUDES(mutex_);

    Mutex mutex_;
    std::condition_variable wake_;
    std::deque<Task> queue_ GUARDED_BY(mutex_);
    bool ending_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace gshm
