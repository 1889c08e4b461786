// Of commands that make objects with --ephemeral.
#pragma once

#include "cli/support/context.h"

namespace gshm::cli {

// Returns at SIGINT, SIGTERM or SIGHUP. Throws a Failure if gshmd has ended. On a terminal it says what it is waiting for.
void hold_until_interrupted(Context& context, const std::vector<std::string>& names);

}  // namespace gshm::cli
