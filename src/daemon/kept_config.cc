#include "daemon/kept_config.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/keeper.h"

namespace gshm::core {
namespace {

// "": no link, or one of another user.
std::string target_of(const std::string& link) {
    struct stat status = {};
    if (lstat(link.c_str(), &status) != 0 || !S_ISLNK(status.st_mode) || status.st_uid != geteuid()) return {};
    std::error_code error;
    const auto target = std::filesystem::read_symlink(link, error);
    return error ? std::string() : target.string();
}

}  // namespace

std::string kept_config_path(const std::string& dir) {
    return dir + "/gshm.toml";
}

std::string kept_config(const std::string& dir) {
    if (access(keeper_socket_path(dir).c_str(), F_OK) != 0) return {};
    auto target = target_of(kept_config_path(dir));
    return target == kNoConfigFile || target.starts_with('/') ? target : std::string();
}

Status keep_config(const std::string& dir, const std::string& file) {
    const std::string link = kept_config_path(dir);
    if (file == target_of(link)) return {};
    if (file.empty()) {
        if (unlink(link.c_str()) == 0 || errno == ENOENT) return {};
        return fail(errno, "cannot remove {}: {}", link, strerror(errno));
    }
    // A gshmd that is killed here leaves the former link or the new one.
    const std::string next = link + ".new";
    unlink(next.c_str());
    if (symlink(file.c_str(), next.c_str()) != 0 || rename(next.c_str(), link.c_str()) != 0) {
        return fail(errno, "cannot make {}, so the next gshmd needs --config {}: {}", link, file, strerror(errno));
    }
    return {};
}

}  // namespace gshm::core
