// What happens to clients in a forked child: their sockets are closed there, so that the session ends with the process
// that made it, and every use is refused.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace gshm::client {

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
uint64_t fork_generation();
Status check_generation(uint64_t remembered);

}  // namespace gshm::client
