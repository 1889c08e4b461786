#include "cli/support/mounts.h"

#include <filesystem>

#include <fmt/core.h>

#include "cli/support/text.h"

namespace gshm::cli {

Record mount_record(const MountInfo& mount) {
    Record record;
    record.add("mountpoint", mount.path)
        .add("read_only", (mount.flags & GSHM_MOUNT_READ_ONLY) != 0)
        .add("subdirectory", mount.subdirectory)
        .add("source", mount.source);
    return record;
}

std::vector<Record> mount_records(const std::vector<MountInfo>& mounts) {
    std::vector<Record> records;
    for (const auto& mount : mounts) records.push_back(mount_record(mount));
    return records;
}

std::string mounts_text(const std::vector<MountInfo>& mounts) {
    std::string text;
    for (const auto& mount : mounts) {
        text += (text.empty() ? "" : ", ") + printable(mount.path);
        const bool read_only = (mount.flags & GSHM_MOUNT_READ_ONLY) != 0;
        const bool part = mount.subdirectory[0] != '\0';
        if (read_only || part) {
            text += fmt::format(" ({}{}{}{})", read_only ? "ro" : "", read_only && part ? ", " : "", part ? "of " : "",
                                printable(mount.subdirectory));
        }
    }
    return text;
}

// The path of a mount that does not answer cannot be resolved.
std::string real_mountpoint(const std::string& given) {
    std::error_code error;
    const auto real = std::filesystem::canonical(given, error);
    return error ? std::filesystem::absolute(given).lexically_normal().string() : real.string();
}

}  // namespace gshm::cli
