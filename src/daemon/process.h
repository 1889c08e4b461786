// Other processes: those of sessions, and those that gshmd starts.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "base/process.h"

namespace gshm::core {

// Sends SIGKILL if the process has that name: the pid of a process that is not a child may have been reused.
void kill_if_named(pid_t pid, const std::string& name);
// The path of a program in gshmd's own folder. If it is not there, its name alone, for a search in $PATH.
std::string program_beside(const std::string& name);

// dying: all threads have SIGKILL pending, are exiting or have ended. This may take long, since the kernel first unmaps GPU
// memory. gone: or /proc does not show the process to gshmd (hidepid).
enum class ProcessState { gone, dying, living };
ProcessState process_state(pid_t pid);
// By a signal such as SIGSTOP, or by a debugger.
bool is_stopped(pid_t pid);

}  // namespace gshm::core
