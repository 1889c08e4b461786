#include "base/safe_folder.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace gshm::core {
namespace {

// Files of root may be shown as those of the overflow user in a user namespace that has no id for root.
bool is_root_elsewhere(uid_t uid) {
    uid_t overflow = 0;
    if (!(std::ifstream("/proc/sys/kernel/overflowuid") >> overflow) || uid != overflow) return false;
    std::ifstream map("/proc/self/uid_map");
    for (uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
        if (uid >= inside && uid - inside < count) return false;
    }
    return true;
}

// A folder above it, or a symbolic link to one.
Status check_above(const std::string& path, const struct stat& status, const std::string& dir, const FolderRole& role) {
    if (status.st_uid != 0 && status.st_uid != geteuid() && !is_root_elsewhere(status.st_uid)) {
        return fail(EPERM, "{} belongs to another user (uid {}), who could replace {} {}: {}", path, status.st_uid,
                    role.what, dir, role.advice);
    }
    if (S_ISLNK(status.st_mode)) return {};
    if (!S_ISDIR(status.st_mode)) return fail(ENOTDIR, "{}, above {} {}, is not a folder", path, role.what, dir);
    if ((status.st_mode & 022) == 0 || (status.st_mode & S_ISVTX) != 0) return {};
    return fail(EPERM,
                "others may write to {}, and could replace {} {}: {}, or take the right from them (chmod go-w {})",
                path, role.what, dir, role.advice, path);
}

}  // namespace

Status check_folders_above(const std::string& dir, const FolderRole& role, bool make) {
    std::error_code error;
    std::string rest = std::filesystem::absolute(dir, error).parent_path().string();
    if (error) return fail(error.value(), "cannot find {}: {}", dir, error.message());
    constexpr int kMostFollowed = 40;  // as the kernel
    int followed = 0;
    std::string at;  // without symbolic links; empty: the root
    struct stat status = {};
    if (lstat("/", &status) != 0) return fail_errno("stat of /");
    TRY(check_above("/", status, dir, role));
    while (!rest.empty()) {
        const size_t slash = rest.find('/');
        const std::string part = rest.substr(0, slash);
        rest.erase(0, slash == rest.npos ? rest.npos : slash + 1);
        if (part.empty() || part == ".") continue;
        if (part == "..") {
            at.resize(at.empty() ? 0 : at.rfind('/'));
            continue;
        }
        const std::string path = at + "/" + part;
        int found = lstat(path.c_str(), &status);
        if (found != 0 && errno == ENOENT) {
            if (!make) return {};
            if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) found = lstat(path.c_str(), &status);
        }
        if (found != 0) return fail(errno, "cannot make {} for {} {}: {}", path, role.what, dir, strerror(errno));
        TRY(check_above(path, status, dir, role));
        if (!S_ISLNK(status.st_mode)) {
            at = path;
            continue;
        }
        const auto target = std::filesystem::read_symlink(path, error).string();
        if (error || ++followed > kMostFollowed) return fail(ELOOP, "{} leads nowhere", path);
        if (target.starts_with('/')) at.clear();
        rest = target + "/" + rest;
    }
    return {};
}

Status check_own_folder(const std::string& dir, const FolderRole& role) {
    struct stat status = {};
    if (lstat(dir.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        return fail(ENOTDIR, "{} {} is not a folder", role.what, dir);
    }
    if (status.st_uid != geteuid()) {
        return fail(EPERM, "{} {} belongs to another user (uid {}): {}", role.what, dir, status.st_uid, role.advice);
    }
    if ((status.st_mode & 022) == 0) return {};
    return fail(EPERM, "others may write to {} {}: {}, or take the right from them (chmod go-w {})", role.what, dir,
                role.advice, dir);
}

}  // namespace gshm::core
