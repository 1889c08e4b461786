// The users of a device, for the message of a refusal.
#pragma once

#include <string>

#include "store/accounts.h"
#include "store/credentials.h"
#include "store/node.h"

namespace gshm::core {

// "objects have 300 MiB: uid 1000 200 MiB, uid 0 100 MiB" for root, with the largest users first; "objects have 300 MiB,
// yours 100 MiB" for others.
std::string users_text(const Accounts& accounts, DeviceIndex device, const Credentials& who);

}  // namespace gshm::core
