// Memory that bytes pass through on their way between a file and a GPU: one piece, pinned once, handed out in chunks.
// Safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "device/device.h"

namespace gshm::io {

class Staging {
public:
    // Pinned for the device (and with it for all GPUs of this process); where that is refused it is not pinned, with a
    // warning that says what to raise, and only slower. Near the device, if the machine has several NUMA nodes.
    static Result<std::shared_ptr<Staging>> create(Device& device, size_t size_bytes);
};

}  // namespace gshm::io
