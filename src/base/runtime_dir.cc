#include "base/runtime_dir.h"

#include <cstdlib>
#include <unistd.h>

#include <gshm/gshm.h>

namespace gshm::core {

Result<std::string> default_runtime_dir() {
    if (const char* dir = getenv("GSHM_DIR"); dir != nullptr && *dir != '\0') return std::string(dir);
    if (geteuid() == 0) return std::string(kSystemRuntimeDir);
    if (const char* dir = getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != '\0') return std::string(dir) + "/gshm";
    return fail(ENOENT, "no runtime folder: set GSHM_DIR or XDG_RUNTIME_DIR, or name one with --dir");
}

std::string socket_path(const std::string& runtime_dir) {
    return runtime_dir + "/" GSHM_SOCKET_NAME;
}

std::string metrics_socket_path(const std::string& runtime_dir) {
    return runtime_dir + "/" GSHM_METRICS_SOCKET_NAME;
}

}  // namespace gshm::core
