// Clients in a forked child: their sockets are closed there, so that the session ends with the process that made it,
// and every use of them fails.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace gshm::core::client {

// An object with a descriptor that a child must close. Registered for its lifetime.
class ForkSensitive {
public:
    ForkSensitive();
    virtual ~ForkSensitive();
    ForkSensitive(const ForkSensitive&) = delete;
    ForkSensitive& operator=(const ForkSensitive&) = delete;

    // Runs in the child, where only async-signal-safe calls are allowed and locks of other threads stay held forever.
    virtual void abandon_in_child() = 0;
};

// Changes in a forked child. Comparing it with a stored value detects a fork.
uint64_t fork_count();
Status check_fork_count(uint64_t remembered);

// One instance for each process, since locks of the parent may be held forever in a child. Never destroyed, since
// handles may outlive main().
template <typename T>
T& per_process() {
    struct Made {
        uint64_t generation = fork_count();
        T value;
    };
    static std::atomic<Made*> current = nullptr;
    Made* found = current.load(std::memory_order_acquire);
    if (found != nullptr && found->generation == fork_count()) return found->value;
    auto* made = new Made;
    if (current.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made->value;
    delete made;
    return found->value;
}

}  // namespace gshm::core::client
