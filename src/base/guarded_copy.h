// Copies to memory that somebody else may take away: a mapping of a file that is made shorter meanwhile.
#pragma once

#include <cstddef>

namespace gshm {

// False if some of `destination` is not there any more (the process would have got SIGBUS). The first call makes this
// process handle that signal; elsewhere it stays deadly.
bool guarded_copy(void* destination, const void* source, size_t bytes);

}  // namespace gshm
