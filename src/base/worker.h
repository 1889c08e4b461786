// A thread that executes slow calls in order, so that other threads do not wait for them. With several threads the
// calls start in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace gshm::core {

class Worker {
public:
    using Task = std::move_only_function<void()>;

    explicit Worker(unsigned threads = 1);
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
    std::vector<std::thread> threads_;
};

}  // namespace gshm::core
