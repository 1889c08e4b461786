// How a failed allocation is reported to torch.
#pragma once

#include "base/result.h"

namespace gshm::core::client {

// Called when gshm_malloc() has failed. If torch calls gshm_malloc() for every tensor (change_current_allocator), NULL
// would become a tensor without memory: throws torch's OutOfMemoryError if the device or the pool is full, else a
// std::runtime_error, which Python sees as RuntimeError. Returns in all other programs, and if torch only takes the
// segments of a MemPool from here: it then throws itself.
void throw_if_torch_expects_it(const Error& error);

}  // namespace gshm::core::client
