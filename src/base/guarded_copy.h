// Copies to and from memory that somebody else may take away: a mapping of a file that is made shorter meanwhile.
#pragma once

#include <cstddef>

namespace gshm {

// False if some of the memory is not there any more (the process would have got SIGBUS; the thread must not block that
// signal). The first call makes this process handle it; elsewhere it stays deadly.
bool guarded_copy(void* destination, const void* source, size_t bytes);

}  // namespace gshm
