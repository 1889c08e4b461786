#pragma once

#include <cstdint>

#include <gshm/version.h>

namespace gshm::core::wire {

// Increased when an old peer could misread a new message. A daemon serves exactly its own version.
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr const char* kProductVersion = GSHM_VERSION;

}  // namespace gshm::core::wire
