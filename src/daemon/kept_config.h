// The configuration file that a gshmd was told to read, kept for the next gshmd at the same runtime folder: the symbolic
// link gshm.toml there. It is no row of the catalog, because the options by which the catalog is found and opened may
// come from this file, and because a takeover reads it while the other gshmd still serves.
#pragma once

#include <string>

#include "base/result.h"

namespace gshm::core {

// "--config none": no file is read.
inline constexpr std::string_view kNoConfigFile = "none";

std::string kept_config_path(const std::string& dir);
// An absolute path, or kNoConfigFile. "": there is no earlier gshmd to resume, or it was told of no file.
std::string kept_config(const std::string& dir);
// For the next gshmd; "": it looks for a file by itself.
Status keep_config(const std::string& dir, const std::string& file);

}  // namespace gshm::core
