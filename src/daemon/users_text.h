// The users of a device, for the message of a refusal.
#pragma once

#include <string>

#include "store/account_limits.h"
#include "store/accounts.h"
#include "store/credentials.h"
#include "store/node.h"

namespace gshm::core {

// "objects have 300 MiB: uid 1000 200 MiB, uid 0 100 MiB" for root, with the largest users first; "objects have 300 MiB,
// yours 100 MiB" for others.
std::string users_text(const Accounts& accounts, DeviceIndex device, const Credentials& who);

// Of the objects below a directory with limits, whose total is not repeated: "below it: uid 1000 200 MiB" for root, "your
// objects below it have 100 MiB" for others. Empty: nothing to add.
std::string users_text(const TreeAccount& account, const Credentials& who);

}  // namespace gshm::core
