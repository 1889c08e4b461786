// Roles of further processes in the GPU suite. CUDA does not survive fork(), so each is this program again, started
// with --role NAME ARGUMENT...; roles.cc describes each role.
#pragma once

#include <string>
#include <vector>

#include "integration/daemon_fixture.h"
#include <gshm/gshm.h>

namespace gshm::core::test {

// In main(): plays the role and returns the exit status. 0 is success; otherwise its output has the reason.
int play_role(const std::vector<std::string>& arguments);

// The command line that starts this program in a role.
std::vector<std::string> role(const std::string& name, const std::vector<std::string>& arguments);

// Starts the role and waits for its end.
RunResult run_role(const std::string& name, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& env = {});

// A handle of 64 bytes as an argument.
std::string to_hex(const uint8_t* handle);
// A handle info as arguments of the import roles.
std::vector<std::string> to_arguments(const gshm_handle_info& info);

}  // namespace gshm::core::test
