// What this process may do with a range of its addresses, as the kernel has it; the bytes are not touched.
#pragma once

#include <cstdint>

namespace gshm {

enum class RangeAccess { none, read, write };

// The least of what all of its bytes allow; none if some of it is not there. Empty ranges are not asked for.
RangeAccess range_access(uint64_t address, uint64_t bytes);

}  // namespace gshm
