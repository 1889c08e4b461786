// The daemon's devices.
#pragma once

#include <string>
#include <vector>

#include "cli/support/context.h"

namespace gshm::cli {

std::vector<gshm_device_info> list_devices(Context& context);
// "ok", or "failed: why"
std::string device_state_text(const gshm_device_info& device);

}  // namespace gshm::cli
