// Extents over memory that the process has already and keeps.
#pragma once

#include "device/device.h"

namespace gshm {

// Ordinary memory, pinned or not. What cannot be written becomes an extent for reading. EINVAL if some of
// the range is not there.
struct WrappedHost {
    std::unique_ptr<Extent> extent;
    Access access = Access::write;
};
Result<WrappedHost> wrap_host(uint64_t address, uint64_t size_bytes);

}  // namespace gshm
