// Which process a session belongs to: a pid alone may be another's by now.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace gshm {

// When it was started, in the kernel's ticks since the boot; 0: it is not there, or not to be seen from here.
uint64_t process_started(pid_t pid);
// It is there, and it is the same. One that cannot be seen from here (pid 0) may be.
bool process_lives(pid_t pid, uint64_t started);

// dying: SIGKILL waits for it, or it is on its way out. That may take long: the kernel takes a GPU's memory apart first.
enum class ProcessState { gone, dying, living };
ProcessState process_state(pid_t pid);

}  // namespace gshm
