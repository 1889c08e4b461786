// A program that goes on by itself: in a session of its own, with no descriptors but those it is given.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace gshm {

// arguments[0] is the name it goes by. descriptors become 3, 4, ...; its streams are /dev/null, not ours: whoever waits for
// their end would wait for that of the program.
Result<pid_t> spawn_apart(const std::string& path, std::vector<std::string> arguments, std::span<const int> descriptors);

}  // namespace gshm
