// The timer of Lifetimes. It runs in the main loop, and its clock also passes while the machine sleeps.
#pragma once

#include <memory>

#include "base/store_lock.h"
#include "daemon/loop.h"
#include "store/lifetimes.h"

namespace gshm::core {

class Expiry {
public:
    // commit: makes the changes so far durable. While it fails, nothing expires.
    static Result<std::unique_ptr<Expiry>> create(EventLoop& loop, Lifetimes& lifetimes, std::function<Status()> commit)
        REQUIRES(store_lock);
    ~Expiry();

    // Removes what has expired while no gshmd ran, as much of it as a start has time for, and starts the timer.
    void start() REQUIRES(store_lock);

private:
    Expiry(EventLoop& loop, Lifetimes& lifetimes, std::function<Status()> commit, UniqueFd timer)
        : loop_(loop), lifetimes_(lifetimes), commit_(std::move(commit)), timer_(std::move(timer)) {}
    void on_timer() REQUIRES(store_lock);
    // Nothing: never.
    void arm(std::optional<int64_t> due_ns);

    EventLoop& loop_;
    Lifetimes& lifetimes_;
    std::function<Status()> commit_;
    UniqueFd timer_;
};

}  // namespace gshm::core
