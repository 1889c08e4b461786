// Processes beside gshmd: which one a session belongs to, and those that gshmd starts itself.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace gshm::core {

// When it was started, in the kernel's ticks since the boot; 0: it is not there, or not to be seen from here.
uint64_t process_started(pid_t pid);
// It is there, and it is the same. One that cannot be seen from here (pid 0) may be.
bool process_lives(pid_t pid, uint64_t started);
// SIGKILL, if the process goes by that name: the number of one that is no child of ours may be another's by now.
void kill_if_named(pid_t pid, const std::string& name);
// The path of a program in the folder of our own, else its name, to be found where programs are.
std::string program_beside(const std::string& name);

// dying: SIGKILL waits for it, or it is on its way out. That may take long: the kernel takes a GPU's memory apart first.
enum class ProcessState { gone, dying, living };
ProcessState process_state(pid_t pid);

}  // namespace gshm::core
