// The mounts in the catalog's settings, from which the next gshmd mounts them again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuse/mount_point.h"

namespace gshm::core {

class Survival;

struct MountRecord {
    std::string path;
    fuse::MountOptions options = {};
    bool operator==(const MountRecord&) const = default;
};

// One line for each mount, as in fstab(5): source, path, subdirectory, options. Blanks and backslashes in them are octal.
std::string mounts_text(const std::vector<MountRecord>& records);
// Lines that cannot be read are left out.
std::vector<MountRecord> parse_mounts(std::string_view text);
// Those of the earlier daemon.
std::vector<MountRecord> earlier_mounts(const Survival& survival);
// Records of the mounts that exist.
std::vector<MountRecord> records_of(const std::vector<fuse::MountPoint>& points);

}  // namespace gshm::core
