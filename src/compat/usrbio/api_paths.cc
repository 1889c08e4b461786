// hf3fs_usrbio.h: mount points of paths, hard links, holes.
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <hf3fs_usrbio.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon.h"

using namespace gshm;
using namespace gshm::usrbio;

namespace {

// The topmost folder above a path that is on the same file system.
std::filesystem::path mount_of(std::filesystem::path path) {
    struct stat here = {};
    struct stat above = {};
    while (path.has_relative_path() && stat(path.c_str(), &here) == 0 &&
           stat(path.parent_path().c_str(), &above) == 0 && here.st_dev == above.st_dev) {
        path = path.parent_path();
    }
    return path;
}

}  // namespace

extern "C" {

bool hf3fs_is_hf3fs(int fd) {
    bool found = false;
    (void)guarded("hf3fs_is_hf3fs", [&]() -> Result<void> {
        found = fd >= 0 && find_daemon(fmt::format("/proc/self/fd/{}", fd)).has_value();
        return {};
    });
    return found;
}

int hf3fs_extract_mount_point(char* hf3fs_mount_point, int size, const char* path) {
    int result = -1;
    (void)guarded("hf3fs_extract_mount_point", [&]() -> Result<void> {
        if (path == nullptr) return {};
        std::error_code error;
        auto real = std::filesystem::canonical(path, error);
        // A file that does not exist yet: its folder.
        if (error) real = std::filesystem::canonical(std::filesystem::absolute(path).parent_path(), error);
        if (error || !find_daemon(real)) return {};
        const std::string mount = mount_of(real);
        result = static_cast<int>(mount.size()) + 1;
        if (hf3fs_mount_point != nullptr && result <= size) memcpy(hf3fs_mount_point, mount.c_str(), mount.size() + 1);
        return {};
    });
    return result;
}

int hf3fs_hardlink(const char* target, const char* link_name) {
    if (target == nullptr || link_name == nullptr) return EINVAL;
    return link(target, link_name) == 0 ? 0 : errno;
}

int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t) {
    if (n < 0 || (n > 0 && (start == nullptr || end == nullptr))) return EINVAL;
    for (int i = 0; i < n; ++i) {
        if (start[i] > end[i]) return EINVAL;
    }
    for (int i = 0; i < n; ++i) {
        if (start[i] == end[i]) continue;
        const auto bytes = static_cast<off_t>(end[i] - start[i]);
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start[i]), bytes) != 0)
            return errno;
    }
    return 0;
}

}  // extern "C"
