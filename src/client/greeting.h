// The handshake of a connection to gshmd.
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
    uint32_t protocol = 0;
    uint64_t instance = 0;
    Secret secret;         // resumes the session later
    bool resumed = false;  // the requested session is resumed, and gshmd waits for Reconcile
};

// Connects once. ECONNREFUSED: no gshmd is there.
Result<Greeting> greet(const std::string& dir, int timeout_ms, uint64_t request, const Secret& secret);
// Whether a retry may succeed because gshmd is starting. EPIPE and ECONNRESET: it died before or during the handshake.
bool may_come(const Error& error);

}  // namespace gshm::core::client
