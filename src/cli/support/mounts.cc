#include "cli/support/mounts.h"

#include <filesystem>
#include <fstream>
#include <sstream>

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

bool is_visible_mount(const std::string& path) {
    // proc(5): the fifth field, in which blanks, line ends and backslashes are octal.
    std::string escaped;
    for (char c : path) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\\') escaped += fmt::format("\\{:03o}", c);
        else escaped += c;
    }
    std::ifstream mounts("/proc/self/mountinfo");
    if (!mounts) return true;  // unknown
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream fields(line);
        std::string field;
        for (int i = 0; i < 5; ++i) fields >> field;
        if (field == escaped) return true;
    }
    return false;
}

}  // namespace gshm::cli
