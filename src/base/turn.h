// The store lock: exclusive for one writer, shared by readers. It knows its exclusive owner.
//
// Made for critical sections of a microsecond: a waiter spins briefly before it sleeps. Writers have priority, so that
// a stream of readers does not starve them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace gshm::core {

class TurnMutex {
public:
    void lock() {
        if (!spin()) mutex_.lock();
        state_.fetch_or(kExclusive, std::memory_order_acq_rel);
        wait_for_readers();
        owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    void unlock() {
        owner_.store({}, std::memory_order_relaxed);
        state_.fetch_and(~kExclusive, std::memory_order_release);
        mutex_.unlock();
    }
    bool try_lock() {
        if (!mutex_.try_lock()) return false;
        state_.fetch_or(kExclusive, std::memory_order_acq_rel);
        wait_for_readers();
        owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        return true;
    }
    void lock_shared() {
        if ((state_.fetch_add(1, std::memory_order_acquire) & kExclusive) == 0) return;
        unlock_shared();
        // The writer holds the mutex for as long as the flag is set.
        if (!spin()) mutex_.lock();
        state_.fetch_add(1, std::memory_order_acquire);
        mutex_.unlock();
    }
    void unlock_shared() {
        if (state_.fetch_sub(1, std::memory_order_release) == (kExclusive | 1)) state_.notify_one();
    }
    // This thread holds it exclusively.
    bool is_mine() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

    // For a thread that looks again and again.
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

private:
    static constexpr uint32_t kExclusive = uint32_t{1} << 31;
    static constexpr int kSpins = 200;

    bool spin() {
        for (int i = 0; i < kSpins; ++i) {
            if ((state_.load(std::memory_order_relaxed) & kExclusive) == 0 && mutex_.try_lock()) return true;
            pause();
        }
        return false;
    }
    void wait_for_readers() {
        for (int i = 0; i < kSpins; ++i) {
            if (state_.load(std::memory_order_acquire) == kExclusive) return;
            pause();
        }
        for (uint32_t state = 0; (state = state_.load(std::memory_order_acquire)) != kExclusive;) state_.wait(state);
    }

    std::mutex mutex_;                 // held by the writer; readers pass through it while there is one
    std::atomic<uint32_t> state_ = 0;  // number of readers, and kExclusive while a writer holds it or waits for readers
    std::atomic<std::thread::id> owner_;
};

using Turn = std::unique_lock<TurnMutex>;
using SharedTurn = std::shared_lock<TurnMutex>;

}  // namespace gshm::core
