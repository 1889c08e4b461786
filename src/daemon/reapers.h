// Threads for destructors that may block on a file or a socket of a client: a file system that does not answer, or a
// socket with SO_LINGER. Every user has threads of their own, started when needed, so that a user delays only
// themselves. Safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <sys/types.h>
#include <vector>

#include "base/budgets.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/worker.h"

namespace gshm::core {

class Reapers {
public:
    Reapers() = default;
    // Waits until all threads have ended.
    ~Reapers();
    Reapers(const Reapers&) = delete;
    Reapers& operator=(const Reapers&) = delete;

    void submit(uid_t uid, Worker::Task task) EXCLUDES(mutex_);
    // Closes descriptors that the user has sent. A connection to the user is one of these: its unread packets may have
    // descriptors. `charge` is given back when they are closed.
    void close(uid_t uid, std::vector<UniqueFd> descriptors, Budgets::Charge charge = {}) EXCLUDES(mutex_);
    // Destroys an object of the user.
    void let_go(uid_t uid, std::shared_ptr<void> what) EXCLUDES(mutex_) {
        if (what) submit(uid, [what = std::move(what)]() mutable { what.reset(); });
    }
    // Executes the queued tasks and ends the threads. False: some are still blocked.
    bool finish(std::chrono::milliseconds patience) EXCLUDES(mutex_);

private:
    static constexpr size_t kThreadsPerUser = 16;
    using Clock = std::chrono::steady_clock;
    struct Queued {
        Worker::Task task;
        Clock::time_point since;
    };
    struct User {
        std::deque<Queued> queue;
        size_t threads = 0;
        size_t busy = 0;         // threads that run a task, or are blocked in one
        size_t standing_by = 0;  // threads that wait until the first task has waited too long
        std::condition_variable wake;
    };
    // Tasks are run one after the other by a single thread, unless it is blocked: thousands of connections that end must
    // not wake thousands of threads.
    void call_thread(uid_t uid, User& user) REQUIRES(mutex_);
    bool needs_thread(const User& user, Clock::time_point now) const REQUIRES(mutex_);
    void start(uid_t uid, User& user) REQUIRES(mutex_);
    void run(uid_t uid) EXCLUDES(mutex_);

    Mutex mutex_;
    std::map<uid_t, User> users_ GUARDED_BY(mutex_);  // with tasks or threads
    bool ending_ GUARDED_BY(mutex_) = false;
    std::condition_variable none_left_;
};

}  // namespace gshm::core
