#include "daemon/folder_reserve.h"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"

namespace gshm::core {
namespace {

struct Space {
    uint64_t free_bytes;
    uint64_t reserve_bytes;  // fitting for the folder
};

std::optional<Space> space_of(const std::string& dir) {
    struct statvfs status = {};
    if (statvfs(dir.c_str(), &status) != 0) return std::nullopt;
    return Space{uint64_t{status.f_bavail} * status.f_frsize,
                 std::min(limits::kFolderReserveBytes, uint64_t{status.f_blocks} * status.f_frsize / 4)};
}

}  // namespace

void FolderReserve::make_room(const std::string& dir) {
    const auto space = space_of(dir);
    if (space && space->free_bytes < space->reserve_bytes) unlink(path(dir).c_str());
}

void FolderReserve::keep() {
    MutexLock lock(mutex_);
    if (kept_) return;
    const auto space = space_of(dir_);
    if (!space) return;
    // Not even tried without the space for it: a transaction under way could need the last pages meanwhile. An earlier
    // gshmd may have left the file, with its space.
    struct stat former = {};
    const uint64_t held_bytes = lstat(path_.c_str(), &former) == 0 ? uint64_t(former.st_blocks) * 512 : 0;
    if (space->free_bytes + held_bytes < space->reserve_bytes) {
        unlink(path_.c_str());
        return set_needed(true);
    }
    auto file = UniqueFd::adopt(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return log_debug("cannot make {}", path_);
    const auto bytes = static_cast<off_t>(space->reserve_bytes);
    const int failed = posix_fallocate(file.get(), 0, bytes);
    kept_ = failed == 0;
    if (!kept_) unlink(path_.c_str());
    set_needed(failed == ENOSPC && space->free_bytes < 2 * space->reserve_bytes);
}

void FolderReserve::give_up() {
    MutexLock lock(mutex_);
    unlink(path_.c_str());
    kept_ = false;
    set_needed(true);
}

void FolderReserve::set_needed(bool needed) {
    if (needed_.exchange(needed) == needed) return;
    if (needed) log_error("{} is full: names can be removed, and none made, until it has space again", dir_);
    else log_info("{} has space again", dir_);
}

void FolderReserve::remove() {
    MutexLock lock(mutex_);
    unlink(path_.c_str());
    kept_ = false;
}

}  // namespace gshm::core
