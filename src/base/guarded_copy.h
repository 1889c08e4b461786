// Copies to and from memory that may disappear: a mapping of a file that another process truncates.
#pragma once

#include <cstddef>

namespace gshm::core {

// Returns false if a part of the memory is gone (SIGBUS; the thread must not block that signal). The first call
// installs a handler for SIGBUS; outside of guarded copies the signal stays fatal.
bool guarded_copy(void* destination, const void* source, size_t bytes);

}  // namespace gshm::core
