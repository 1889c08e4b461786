// fakecuda, a test double of NVIDIA's driver: device memory as a memfd that can be told in other processes.
#pragma once

#include <memory>

#include "state.h"

namespace fakecuda {

// New memory, poisoned. nullptr: the machine has none left.
std::shared_ptr<Allocation> create_allocation(Device& device, const CUmemAllocationProp& properties, size_t size);

struct Opened {
    CUresult result = kErrorUnknown;  // the driver's reply to a foreign descriptor
    std::shared_ptr<Allocation> memory;
};

// Memory from a path of /proc/<pid>/fd that leads to one of our memfds, made by this process or by another.
// With `inode` not 0 it has to be that one.
Opened open_allocation(const char* path, ino_t inode = 0);

// Another descriptor of the same memory, close-on-exec. `flags`: O_PATH etc. -1: no descriptors left.
int reopen(const Allocation& memory, int flags);

}  // namespace fakecuda
