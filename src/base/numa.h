// Where memory is, on machines that have several NUMA nodes.
#pragma once

#include <cstddef>
#include <span>

namespace gshm {

// Before any page of it is touched. A wish: on a full node the memory comes from another. node < 0: none.
void place_near(std::span<std::byte> memory, int node);

}  // namespace gshm
