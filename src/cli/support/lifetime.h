// Of commands that make objects with --ephemeral.
#pragma once

#include "cli/support/context.h"

namespace gshm::cli {

// Returns at SIGINT, SIGTERM or SIGHUP. Throws a Failure if gshmd has ended.
void hold_until_interrupted(Context& context);

}  // namespace gshm::cli
