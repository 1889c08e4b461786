#include "client/ring/shared_ring.h"

namespace gshm::core::client {

// The sleeper is woken first: it sleeps on memory that this call may replace, and does not know of its transfers.
Result<size_t> SharedRing::submit() {
    std::unique_lock lock(mutex_);
    ++submitting_;
    struct Leave {
        SharedRing& shared;
        ~Leave() {
            --shared.submitting_;
            shared.changed_.notify_all();
        }
    } const leave{*this};
    while (asleep_) {
        ring_.nudge();
        changed_.wait(lock);
    }
    return ring_.submit();
}

size_t SharedRing::take(std::span<gshm_completion> ret_completions, size_t least) {
    const size_t of_others = awaited_ - least;
    const size_t free = ring_.ready() > of_others ? ring_.ready() - of_others : 0;
    const size_t taken = ring_.take(ret_completions.first(std::min(ret_completions.size(), std::max(least, free))));
    // The others look again: nothing may be left to wait for.
    if (of_others > 0) {
        changed_.notify_all();
        if (asleep_) ring_.nudge();
    }
    return taken;
}

void SharedRing::sleep(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until) {
    if (asleep_ || submitting_ > 0) {
        // Not wait_until(time_point::max()), whose conversion to a timespec overflows.
        if (until == std::chrono::steady_clock::time_point::max()) changed_.wait(lock);
        else changed_.wait_until(lock, until);
        return;
    }
    const auto nap = ring_.fall_asleep(1);
    asleep_ = true;
    lock.unlock();
    Ring::sleep(nap, until);
    lock.lock();
    asleep_ = false;
    ring_.wake_up(nap);
    changed_.notify_all();
}

Result<size_t> SharedRing::wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms) {
    if (least > ret_completions.size()) return fail(EINVAL, "there is no room for so many completions");
    const auto until = Ring::deadline(timeout_ms);
    std::unique_lock lock(mutex_);
    awaited_ += least;
    struct Leave {
        size_t& awaited;
        size_t least;
        ~Leave() { awaited -= least; }
    } const leave{awaited_, least};
    for (;;) {
        const size_t before = ring_.ready();
        ring_.collect();
        if (ring_.ready() != before) changed_.notify_all();  // another thread may need fewer than this one
        const bool complete = ring_.ready() >= least || ring_.under_way() == 0;
        if (complete || std::chrono::steady_clock::now() >= until || ring_.take_wake()) {
            return take(ret_completions, least);
        }
        // Not while a thread sleeps: the search may replace the memory on which it sleeps.
        if (!asleep_) TRY(ring_.look_for_daemon());
        if (ring_.ready() < least && ring_.under_way() > 0) sleep(lock, until);
    }
}

}  // namespace gshm::core::client
