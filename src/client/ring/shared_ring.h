// A ring for several threads, GSHM_RING_SHARED: a lock around every call, and one thread at a time that sleeps for all.
#pragma once

#include <condition_variable>
#include <mutex>

#include "client/ring/ring.h"

namespace gshm::core::client {

class SharedRing {
public:
    explicit SharedRing(Ring& ring) : ring_(ring) {}

    // Runs a call that does not wait. The sleeper is woken first, since it sleeps on memory of the ring that the call may
    // replace, and since it does not know of transfers that the call begins.
    template <typename Body>
    auto run(Body&& body) {
        std::unique_lock lock(mutex_);
        ++callers_;
        while (asleep_) {
            ring_.nudge();
            changed_.wait(lock);
        }
        const CallEnd end(*this);
        return body(ring_);
    }
    // A completion goes to the thread that takes it first, but no thread takes those that others need for their own
    // `least`. Fewer than `least`: nothing more is under way.
    Result<size_t> wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms);

private:
    // Also if the body throws.
    struct CallEnd {
        explicit CallEnd(SharedRing& of) : shared(of) {}
        CallEnd(const CallEnd&) = delete;
        CallEnd& operator=(const CallEnd&) = delete;
        ~CallEnd() {
            --shared.callers_;
            shared.changed_.notify_all();
        }
        SharedRing& shared;
    };
    size_t take(std::span<gshm_completion> ret_completions, size_t least);
    // Waits for completions, for the end of another thread's sleep, or until the time. The lock is held before and after.
    void sleep(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until);

    Ring& ring_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool asleep_ = false;  // a thread sleeps, without the lock
    size_t callers_ = 0;   // in run(); a thread falls asleep only after them
    size_t awaited_ = 0;   // the sum of `least` of the threads in wait()
};

}  // namespace gshm::core::client
