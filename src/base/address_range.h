// The access rights of this process to a range of its addresses, according to the kernel. The bytes are not touched.
#pragma once

#include <cstdint>

namespace gshm::core {

enum class RangeAccess { none, read, write };

// The access that all bytes of the range allow; none if a part is not mapped. The range must not be empty.
RangeAccess range_access(uint64_t address, uint64_t bytes);

}  // namespace gshm::core
