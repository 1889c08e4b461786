// The command line of gshmd, by the rows of option_table.h.
#pragma once

#include <string>

#include "daemon/option_table.h"

namespace gshm::core {

// The options that are given. EINVAL: wrong usage.
Result<Settings> parse_command_line(int argc, char** argv);
// The text of --help.
std::string help_text();

}  // namespace gshm::core
