// The runtime folder, where clients find a daemon.
#pragma once

#include <string>

#include "base/result.h"

namespace gshm::core {

inline constexpr const char* kSystemRuntimeDir = "/run/gshm";

// $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm.
Result<std::string> default_runtime_dir();
std::string socket_path(const std::string& runtime_dir);
// HTTP, for metrics.
std::string metrics_socket_path(const std::string& runtime_dir);

}  // namespace gshm::core
