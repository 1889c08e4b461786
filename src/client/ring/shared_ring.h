// A ring for several threads, GSHM_RING_SHARED: a lock around every call, and one thread at a time that sleeps for all.
#pragma once

#include <condition_variable>
#include <mutex>

#include "client/ring/ring.h"

namespace gshm::core::client {

class SharedRing {
public:
    explicit SharedRing(Ring& ring) : ring_(ring) {}

    // Runs a call that neither waits nor begins transfers.
    template <typename Body>
    auto run(Body&& body) {
        const std::lock_guard lock(mutex_);
        return body(ring_);
    }
    Result<size_t> submit();
    // A completion goes to the thread that takes it first, but no thread takes those that others need for their own
    // `least`. Fewer than `least`: nothing more is under way.
    Result<size_t> wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms);

private:
    size_t take(std::span<gshm_completion> ret_completions, size_t least);
    // Waits for completions, for the end of another thread's sleep, or until the time. The lock is released meanwhile.
    void sleep(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until);

    Ring& ring_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool asleep_ = false;    // a thread sleeps, without the lock
    size_t submitting_ = 0;  // threads in submit(); no thread falls asleep before they are done
    size_t awaited_ = 0;     // the sum of `least` of the threads in wait()
};

}  // namespace gshm::core::client
