// Extents over memory that the process owns.
#pragma once

#include "device/device.h"

namespace gshm::core {

// Ordinary memory, pinned or not. Read-only memory becomes a read-only extent. EINVAL if a part of the range is not
// mapped.
struct WrappedHost {
    std::unique_ptr<Extent> extent;
    Access access = Access::write;
};
Result<WrappedHost> wrap_host(uint64_t address, uint64_t size_bytes);

}  // namespace gshm::core
