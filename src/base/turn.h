// The lock of whatever is for one thread at a time, and that knows whose turn it is.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace gshm {

class TurnMutex {
public:
    void lock() {
        mutex_.lock();
        owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    void unlock() {
        owner_.store({}, std::memory_order_relaxed);
        mutex_.unlock();
    }
    bool try_lock() {
        if (!mutex_.try_lock()) return false;
        owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        return true;
    }
    // It is this thread's turn.
    bool is_mine() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

private:
    std::mutex mutex_;
    std::atomic<std::thread::id> owner_;
};

using Turn = std::unique_lock<TurnMutex>;

}  // namespace gshm
