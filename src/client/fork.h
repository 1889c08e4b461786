// What happens to clients in a forked child: their sockets are closed there, so that the session ends with the process
// that made it, and every use is refused.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace gshm::core::client {

// Something with a descriptor that a child must not keep. Adds itself while it lives.
class ForkSensitive {
public:
    ForkSensitive();
    virtual ~ForkSensitive();
    ForkSensitive(const ForkSensitive&) = delete;
    ForkSensitive& operator=(const ForkSensitive&) = delete;

    // In the child, where only async-signal-safe calls are allowed and other threads' locks are held for ever.
    virtual void abandon_in_child() = 0;
};

// Differs from a remembered value in a child made since.
uint64_t fork_count();
Status check_fork_count(uint64_t remembered);

// One for each process: in a child the parent's locks may be held for ever. Never destroyed, since handles may outlive main().
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
