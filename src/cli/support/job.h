// Work that several threads do together, with one line of progress, and failures that concern one object alone.
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
    // What there is to clear away when it is interrupted: all goes with the process, or the threads have to see to it.
    enum class Clearing { by_ending, by_threads };
    Job(Context& context, const std::string& what, uint64_t total_bytes, Clearing clearing = Clearing::by_threads);

    // Runs body(thread) in that many threads and returns when all have ended. What one throws ends the others and is
    // thrown here; so is an interruption. If a thread waits for a file that does not answer, an interruption ends the
    // program, provided that this clears all away.
    void run(unsigned threads, const std::function<void(unsigned)>& body);

    // ---- for the threads ----
    bool stopping() const { return stop_.load(std::memory_order_relaxed) || interrupt_.is_interrupted(); }
    void advance(uint64_t bytes) { done_bytes_ += bytes; }
    // One object's failure: it is told and the others go on, unless the daemon itself has gone.
    void fail(const Failure& failure);
    void warn(std::string message);

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
    std::mutex mutex_;  // of what follows
    std::condition_variable ended_;
    unsigned running_ = 0;
    std::exception_ptr thrown_;
    std::vector<std::function<void()>> to_tell_;
    int exit_code_ = 0;
};

// What is left to do. What is taken may lead to more, so it is said when it is done.
template <typename Task>
class TaskList {
public:
    explicit TaskList(const Job& job) : job_(job) {}

    void push(Task task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        changed_.notify_one();
    }
    // Nothing: all is done, or the job stops.
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

// As many as there are processors, within bounds, unless asked for otherwise (0: not asked). More than one for each of
// few processors, since a thread also waits for the disk.
unsigned thread_count(unsigned asked);

}  // namespace gshm::cli
