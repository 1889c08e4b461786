// An event loop: descriptors, timers, and tasks of other threads. gshmd's main loop runs its callbacks under the store
// lock; the loops of client connections run them without a lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/store_lock.h"

namespace gshm::core {

class EventLoop {
public:
    using Callback = std::function<void(uint32_t events)>;
    using Task = std::move_only_function<void()>;
    using TimerId = std::pair<std::chrono::steady_clock::time_point, uint64_t>;

    enum class Locking { none, store };  // the lock that is held while a callback runs

    static Result<std::unique_ptr<EventLoop>> create(Locking locking = Locking::store);

    // From any thread; with Locking::store under the lock, so that no callback runs after unwatch().
    // events as in epoll_ctl(2), level-triggered. A callback may unwatch any descriptor, its own included.
    // caller: for the LockReport, as below.
    Status watch(int fd, uint32_t events, Callback callback,
                 std::source_location caller = std::source_location::current()) EXCLUDES(mutex_);
    // The same for a descriptor of a group. In each round the loop serves few descriptors of a group, so that groups with
    // many do not delay the others.
    Status watch_in_group(uint64_t group, int fd, uint32_t events, Callback callback,
                          std::source_location caller = std::source_location::current()) EXCLUDES(mutex_);
    void change(int fd, uint32_t events) EXCLUDES(mutex_);
    void unwatch(int fd) EXCLUDES(mutex_);

    TimerId after(std::chrono::milliseconds delay, Task task,
                  std::source_location caller = std::source_location::current()) EXCLUDES(mutex_);
    void cancel(const TimerId& timer) EXCLUDES(mutex_);

    // The store lock. While another thread holds it, no callback, task or timer runs. The holder must not wait for the
    // loop.
    StoreMutex& store_mutex() { return store_mutex_; }
    // Runs after every callback and timer, before the lock is released.
    void set_after(std::function<void()> after) { after_ = std::move(after); }

    // Runs the task in the loop. From any thread.
    void post(Task task, std::source_location caller = std::source_location::current()) EXCLUDES(mutex_);

    // Destroys tasks that have not run. After run().
    void drop_posted() EXCLUDES(mutex_);

    void run();
    // From any thread.
    bool is_running() const { return running_.load(std::memory_order_acquire); }
    // run() returns after the current callback. From any thread.
    void stop();
    bool is_stopping() const { return stopped_.load(std::memory_order_acquire); }

private:
    EventLoop(UniqueFd epoll, UniqueFd wake, Locking locking)
        : epoll_(std::move(epoll)), wake_(std::move(wake)), locking_(locking) {}
    // An epoll instance inside of that of the loop.
    struct Group {
        uint64_t number;
        UniqueFd epoll;
        size_t watches = 0;
    };
    void wake();
    void under_lock(auto&& action);
    void describe_hold(const std::source_location& caller);
    Status add(int fd, uint32_t events, Callback callback, std::source_location caller, std::shared_ptr<Group> group)
        REQUIRES(mutex_);
    void run_watched(int fd, uint64_t id, uint32_t events) EXCLUDES(mutex_);
    void run_group(const Group& group) EXCLUDES(mutex_);
    int next_timeout_ms() EXCLUDES(mutex_);
    void run_timer() EXCLUDES(mutex_);
    void run_posted() EXCLUDES(mutex_);

    UniqueFd epoll_;
    UniqueFd wake_;
    const Locking locking_;
    std::atomic<bool> stopped_ = false;
    std::atomic<bool> running_ = false;
    std::function<void()> after_;
    StoreMutex store_mutex_;  // held while callbacks run, with Locking::store; taken before mutex_

    Mutex mutex_;
    uint64_t next_id_ GUARDED_BY(mutex_) = 1;
    struct Watch {
        uint64_t id;
        Callback callback;
        std::source_location caller;
        std::shared_ptr<Group> group;  // null: none
    };
    struct Posted {
        Task task;
        std::source_location caller;
    };
    // Events carry the id of the watch, so that an old event of a closed and reused descriptor is ignored.
    std::unordered_map<int, std::shared_ptr<Watch>> watches_ GUARDED_BY(mutex_);
    std::map<uint64_t, std::shared_ptr<Group>> groups_ GUARDED_BY(mutex_);
    std::map<TimerId, Posted> timers_ GUARDED_BY(mutex_);
    std::vector<Posted> posted_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
