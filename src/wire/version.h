#pragma once

#include <cstdint>

#include <gshm/version.h>

namespace gshm::core::wire {

// The protocols that this build speaks. The highest is increased when an old peer could misread a new message, or does
// not know a request. The lowest stays 1 as long as the version is 0.x.
inline constexpr uint32_t kProtocolLowest = 1;
inline constexpr uint32_t kProtocolHighest = 2;
inline constexpr const char* kProductVersion = GSHM_VERSION;

}  // namespace gshm::core::wire
