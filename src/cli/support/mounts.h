// The mounts of gshmd in output and arguments.
#pragma once

#include <string>
#include <vector>

#include "cli/support/record.h"
#include <gshm/gshm.hpp>

namespace gshm::cli {

// As in the kernel's mount table.
std::string real_mountpoint(const std::string& given);
// Whether the mount namespace of this process has a mount at that path.
bool is_visible_mount(const std::string& path);
Record mount_record(const MountInfo& mount);
std::vector<Record> mount_records(const std::vector<MountInfo>& mounts);
// "/mnt/a, /mnt/b (ro, of models)"
std::string mounts_text(const std::vector<MountInfo>& mounts);

}  // namespace gshm::cli
