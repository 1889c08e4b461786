// A folder that is mounted on: by root with mount(2), by others through fusermount3.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"

namespace gshm::core::fuse {

class MountPoint {
public:
    // Takes over from a daemon that died and left its mount there. EBUSY if something alive is mounted there.
    // Returns with the descriptor that requests come through.
    static Result<MountPoint> create(const std::string& path, UniqueFd* ret_fd);
    // What is mounted there already, by an earlier daemon.
    static MountPoint find(const std::string& path);
    MountPoint(MountPoint&&) = default;
    MountPoint& operator=(MountPoint&&) = default;

    const std::string& path() const { return path_; }
    bool is_mounted() const { return !id_.empty(); }
    // EBUSY while files are open there. Lazily: it is gone at once for everyone who looks, and for good when the last
    // file is closed. If it is not mounted any more, nothing happens.
    Status unmount(bool lazily) const;

    // For who comes after us: which mount this was, and that one if it is still there.
    std::string note() const { return id_ + " " + path_; }
    static std::optional<MountPoint> from_note(const std::string& note);
    // Nobody will answer there any more: whoever waits for that gets an error, and it is gone.
    void give_up() const;

private:
    MountPoint(std::string path, std::string id) : path_(std::move(path)), id_(std::move(id)) {}

    std::string path_;
    std::string id_;  // the kernel's, of this mount: there may be another at the same place
};

}  // namespace gshm::core::fuse
