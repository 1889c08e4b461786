// Work for several threads with one progress line, in which the failure of one object does not end the others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/interrupt.h"
#include "cli/support/progress.h"

namespace gshm::cli {

class Job {
public:
    // How an interrupted job cleans up: by the end of the process, or by its threads.
    enum class Clearing { by_ending, by_threads };
    Job(Context& context, const std::string& what, uint64_t total_bytes, Clearing clearing = Clearing::by_threads);

    // Runs body(thread) in that many threads and returns when all have ended. An exception of one thread ends the
    // others and is rethrown here; so is an interruption. With Clearing::by_ending, an interruption also ends a program
    // with a thread blocked in a file operation.
    void run(unsigned threads, const std::function<void(unsigned)>& body);

    // ---- for the threads ----
    bool stopping() const { return stop_.load(std::memory_order_relaxed) || interrupt_.is_interrupted(); }
    void advance(uint64_t bytes) { done_bytes_ += bytes; }
    // Reports the failure of one object; the others continue. Throws it if the daemon is gone.
    void fail(const Failure& failure);
    void warn(std::string message);

    // Later signals do not change the exit status.
    void set_complete() { interrupt_.set_complete(); }
    int exit_code() const { return exit_code_; }
    double seconds() const { return progress_.seconds(); }

private:
    void tell();

    Context& context_;
    const Clearing clearing_;
    InterruptGuard interrupt_;
    Progress progress_;
    std::atomic<bool> stop_ = false;
    std::atomic<uint64_t> done_bytes_ = 0;
    std::mutex mutex_;  // of the following members
    std::condition_variable ended_;
    unsigned running_ = 0;
    std::exception_ptr thrown_;
    std::vector<std::function<void()>> to_tell_;
    int exit_code_ = 0;
};

// The tasks left to do. A task may add further ones, so take() waits until every taken task is done().
template <typename Task>
class TaskList {
public:
    explicit TaskList(const Job& job) : job_(job) {}

    void push(Task task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        changed_.notify_one();
    }
    // nullopt: all tasks are done, or the job stops.
    std::optional<Task> take() {
        std::unique_lock lock(mutex_);
        while (tasks_.empty() && under_way_ > 0 && !job_.stopping())
            changed_.wait_for(lock, std::chrono::milliseconds(20));
        if (tasks_.empty() || job_.stopping()) return std::nullopt;
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        ++under_way_;
        return task;
    }
    void done() {
        const std::lock_guard lock(mutex_);
        if (--under_way_ == 0) changed_.notify_all();
    }

private:
    const Job& job_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    size_t under_way_ = 0;
};

// The number of processors, within bounds, unless a number is requested (0: none). On few processors there are more
// threads than processors, since threads also wait for the disk.
unsigned thread_count(unsigned asked);

}  // namespace gshm::cli
