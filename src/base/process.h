// Whether another process still runs, by its pid and its start time.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace gshm::core {

// The start time in clock ticks since the boot; 0: no such process, or not visible from here.
uint64_t process_started(pid_t pid);
// Whether the process with that start time still runs. True for a process of another pid namespace (pid 0).
bool process_lives(pid_t pid, uint64_t started);
// The process of a thread; 0: no such thread, or not visible from here.
pid_t process_of_thread(pid_t thread);

}  // namespace gshm::core
