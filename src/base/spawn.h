// Starts an independent program: in a session of its own, with only the given descriptors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace gshm::core {

// arguments[0] is its process name. The descriptors become 3, 4, ... Its standard streams are /dev/null: a reader of
// inherited ones would wait for the end of the program.
Result<pid_t> spawn_apart(const std::string& path, std::vector<std::string> arguments,
                          std::span<const int> descriptors);

}  // namespace gshm::core
