// A mount point: root mounts with mount(2), other users through fusermount3.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"

namespace gshm::core::fuse {

class MountPoint {
public:
    // Replaces the mount of a daemon that died. EBUSY if another gshmd is mounted there. Sets ret_fd to the descriptor
    // for requests.
    static Result<MountPoint> create(const std::string& path, UniqueFd* ret_fd);
    // The existing mount of an earlier daemon.
    static MountPoint find(const std::string& path);
    MountPoint(MountPoint&&) = default;
    MountPoint& operator=(MountPoint&&) = default;

    const std::string& path() const { return path_; }
    bool is_mounted() const { return !id_.empty(); }
    // EBUSY while files in it are open. Lazily: it is detached from the path at once, and ends when the last file is
    // closed. No effect if it is not mounted any more.
    Status unmount(bool lazily) const;

    // note() identifies the mount to a later daemon. from_note() is that mount, if it still exists.
    std::string note() const { return id_ + " " + path_; }
    static std::optional<MountPoint> from_note(const std::string& note);
    // Ends a mount that no daemon will serve any more: waiting processes get an error.
    void give_up() const;

private:
    MountPoint(std::string path, std::string id) : path_(std::move(path)), id_(std::move(id)) {}

    std::string path_;
    std::string id_;  // the kernel's id of the mount, since another may be at the same path
};

}  // namespace gshm::core::fuse
