// The store lock: exclusive for one writer, shared by readers. It knows its owner, and clang's -Wthread-safety checks
// its use.
//
// Made for critical sections of a microsecond: a waiter spins briefly before it sleeps. Writers have priority, so that
// a stream of readers does not starve them.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <thread>

#include "base/lock_report.h"
#include "base/thread_annotations.h"

namespace gshm::core {

// The capability to use the store, which a thread has while it holds a StoreMutex. A process has one store, so all
// annotations use this one name.
class CAPABILITY("store lock") StoreCapability {
public:
    // For a callback: the analysis does not see its caller. Asserts that the thread holds the lock.
    inline void assert_held() const ASSERT_CAPABILITY(this);
    inline void assert_shared() const ASSERT_SHARED_CAPABILITY(this);
};
inline const StoreCapability store_lock;

// Locked by StoreLock and SharedStoreLock.
class StoreMutex {
public:
    // This thread holds it exclusively.
    bool is_mine() const { return held_ == this; }

    // For the LockReport, if the location of the lock does not identify the action. `what` is a string constant.
    void describe_hold(const std::source_location& caller, const char* what = nullptr) REQUIRES(store_lock) {
        if (LockReport::is_on()) [[unlikely]]
            hold_.describe(caller, what);
    }

    // For spinning threads.
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

private:
    friend class StoreLock;
    friend class SharedStoreLock;
    friend class StoreCapability;

    static constexpr uint32_t kExclusive = uint32_t{1} << 31;
    // Where cores are few, the holder may wait for this very core.
    static inline const int kSpins = std::thread::hardware_concurrency() > 4 ? 1000 : 200;

    void lock(const std::source_location& caller) {
        assert(!is_mine());
        if (!spin()) mutex_.lock();
        state_.fetch_or(kExclusive, std::memory_order_acq_rel);
        wait_for_readers();
        held_ = this;
        if (LockReport::is_on()) [[unlikely]]
            hold_.begin(caller);
    }
    void unlock() {
        if (LockReport::is_on()) [[unlikely]]
            hold_.end();
        held_ = nullptr;
        state_.fetch_and(~kExclusive, std::memory_order_release);
        mutex_.unlock();
    }
    void lock_shared() {
        assert(held_ != this && !shares_);
        shares_ = true;
        if ((state_.fetch_add(1, std::memory_order_acquire) & kExclusive) == 0) return;
        leave_shared();
        // The writer holds the mutex for as long as the flag is set.
        if (!spin()) mutex_.lock();
        state_.fetch_add(1, std::memory_order_acquire);
        mutex_.unlock();
    }
    void unlock_shared() {
        shares_ = false;
        leave_shared();
    }
    void leave_shared() {
        if (state_.fetch_sub(1, std::memory_order_release) == (kExclusive | 1)) state_.notify_one();
    }

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

    static inline thread_local const StoreMutex* held_ = nullptr;  // held exclusively by this thread
    static inline thread_local bool shares_ = false;               // this thread holds one shared

    std::mutex mutex_;                 // held by the writer; readers wait on it while there is a writer
    std::atomic<uint32_t> state_ = 0;  // number of readers, and kExclusive while a writer holds it or waits for readers
    LockReport::Hold hold_;            // of the writer
};

void StoreCapability::assert_held() const {
    assert(StoreMutex::held_ != nullptr);
}
void StoreCapability::assert_shared() const {
    assert(StoreMutex::shares_ || StoreMutex::held_ != nullptr);
}

// Holds the lock exclusively. lock() and unlock() name the capability, so that a guard can be passed to a function.
class SCOPED_CAPABILITY StoreLock {
public:
    explicit StoreLock(StoreMutex& mutex, std::source_location caller = std::source_location::current())
        ACQUIRE(store_lock)
        : mutex_(mutex) {
        mutex_.lock(caller);
    }
    ~StoreLock() RELEASE() {
        if (mutex_.is_mine()) mutex_.unlock();
    }
    StoreLock(const StoreLock&) = delete;
    StoreLock& operator=(const StoreLock&) = delete;

    void lock(std::source_location caller = std::source_location::current())
        ACQUIRE(store_lock) NO_THREAD_SAFETY_ANALYSIS {
        mutex_.lock(caller);
    }
    void unlock() RELEASE(store_lock) NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }

private:
    StoreMutex& mutex_;
};

// Holds the lock shared with other readers. The store does not change meanwhile.
class SCOPED_CAPABILITY SharedStoreLock {
public:
    explicit SharedStoreLock(StoreMutex& mutex) ACQUIRE_SHARED(store_lock) : mutex_(mutex) { mutex_.lock_shared(); }
    ~SharedStoreLock() RELEASE() { mutex_.unlock_shared(); }
    SharedStoreLock(const SharedStoreLock&) = delete;
    SharedStoreLock& operator=(const SharedStoreLock&) = delete;

private:
    StoreMutex& mutex_;
};

}  // namespace gshm::core
