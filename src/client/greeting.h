// The first words of a connection to gshmd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wire/message.h"

namespace gshm::core::client {

struct RemoteDevice {
    std::string name;
    std::string uuid;
};

struct Secret {
    uint64_t low = 0;  // both 0: none
    uint64_t high = 0;
};

struct Greeting {
    UniqueFd socket;
    std::shared_ptr<const std::vector<RemoteDevice>> devices;
    uint64_t instance = 0;
    Secret secret;         // by which the session can be taken up again
    bool resumed = false;  // it is the session that was asked for, and gshmd waits for Reconcile
};

// Connects once. ECONNREFUSED: no gshmd is there.
Result<Greeting> greet(const std::string& dir, int timeout_ms, uint64_t request, const Secret& secret);
// Worth trying again, for a gshmd that is being started: EPIPE and ECONNRESET if it dies before or while it is greeted.
bool may_come(const Error& error);

}  // namespace gshm::core::client
