// Values that gshmd or the machine knows. Empty if they cannot be had.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gshm::cli {

// dir: the runtime folder; "": the default one. The results begin with `prefix`; directories end in a slash.
std::vector<std::string> object_candidates(const std::string& dir, std::string_view prefix);
std::vector<std::string> device_candidates(const std::string& dir);
std::vector<std::string> attribute_candidates(const std::string& dir, const std::string& object);
std::vector<std::string> mount_candidates(const std::string& dir);
std::vector<std::string> user_candidates();
std::vector<std::string> group_candidates();
// Paths of the file system that begin with `prefix`; folders end in a slash.
std::vector<std::string> path_candidates(std::string_view prefix, bool folders_only);

}  // namespace gshm::cli
