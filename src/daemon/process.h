// Other processes: those of sessions, and those that gshmd starts.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace gshm::core {

// The start time in clock ticks since the boot; 0: no such process, or not visible from here.
uint64_t process_started(pid_t pid);
// Whether the process with that start time still runs. True for a process of another pid namespace (pid 0).
bool process_lives(pid_t pid, uint64_t started);
// Sends SIGKILL if the process has that name: the pid of a process that is not a child may have been reused.
void kill_if_named(pid_t pid, const std::string& name);
// The path of a program in gshmd's own folder. If it is not there, its name alone, for a search in $PATH.
std::string program_beside(const std::string& name);

// dying: SIGKILL is pending, or the process is exiting. This may take long, since the kernel first unmaps GPU memory.
enum class ProcessState { gone, dying, living };
ProcessState process_state(pid_t pid);

}  // namespace gshm::core
