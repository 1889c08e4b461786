// Placement of memory on machines with several NUMA nodes.
#pragma once

#include <cstddef>
#include <span>

namespace gshm::core {

// Call it before any page is touched. A preference: if the node is full, memory comes from another. node < 0: none.
void place_near(std::span<std::byte> memory, int node);

}  // namespace gshm::core
