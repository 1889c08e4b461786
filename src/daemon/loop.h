// The daemon's one thread of control: waits for descriptors, timers and work that other threads hand back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/turn.h"

namespace gshm {

class EventLoop {
public:
    using Callback = std::function<void(uint32_t events)>;
    using Task = std::move_only_function<void()>;
    using TimerId = std::pair<std::chrono::steady_clock::time_point, uint64_t>;

    static Result<std::unique_ptr<EventLoop>> create();

    // events as in epoll_ctl(2), level-triggered. A callback may unwatch anything, itself included.
    Status watch(int fd, uint32_t events, Callback callback);
    void change(int fd, uint32_t events);
    void unwatch(int fd);

    TimerId after(std::chrono::milliseconds delay, Task task);
    void cancel(const TimerId& timer);

    // From any other thread: as long as the lock is held no callback, task or timer runs, so that the thread may do
    // what else only they may. The loop must not be asked to wait meanwhile.
    [[nodiscard]] Turn enter() { return Turn(turn_); }
    bool is_entered() const { return turn_.is_mine(); }
    // Runs after every callback and timer, before others have their turn.
    void set_after(std::function<void()> after) { after_ = std::move(after); }

    // From any thread: runs the task in the loop.
    void post(Task task) EXCLUDES(mutex_);

    void run();
    // From any thread. Before run() the starting thread has the daemon to itself, and takes no turns.
    bool is_running() const { return running_.load(std::memory_order_acquire); }
    void stop() { stopped_ = true; }

private:
    EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
    int next_timeout_ms() const;
    void run_timers();
    void run_posted() EXCLUDES(mutex_);

    UniqueFd epoll_;
    UniqueFd wake_;
    bool stopped_ = false;
    std::atomic<bool> running_ = false;
    uint64_t next_id_ = 1;
    struct Watch {
        uint64_t id;
        Callback callback;
    };
    // Events carry the id as well, so that one for a descriptor that was closed and reused is not mistaken.
    std::unordered_map<int, std::shared_ptr<Watch>> watches_;
    std::map<TimerId, Task> timers_;

    std::function<void()> after_;
    TurnMutex turn_;  // held by whoever runs callbacks; before mutex_

    Mutex mutex_;
    std::vector<Task> posted_ GUARDED_BY(mutex_);
};

}  // namespace gshm
