// std::mutex and a lock with annotations for clang's -Wthread-safety (those of libstdc++ have none).
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace gshm::core {

class CAPABILITY("mutex") Mutex {
public:
    void lock() ACQUIRE() { mutex_.lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }
    // For a callback of a function that holds the mutex: the analysis does not follow callbacks. Not checked at run
    // time.
    void assert_held() const ASSERT_CAPABILITY(this) {}

private:
    friend class MutexLock;
    std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
public:
    explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
    ~MutexLock() RELEASE() {}
    void wait(std::condition_variable& condition) { condition.wait(lock_); }
    template <typename Time>
    void wait_until(std::condition_variable& condition, const Time& time) {
        condition.wait_until(lock_, time);
    }
    void unlock() RELEASE() { lock_.unlock(); }
    void lock() ACQUIRE() { lock_.lock(); }

private:
    std::unique_lock<std::mutex> lock_;
};

}  // namespace gshm::core
