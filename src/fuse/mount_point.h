// A mount point: root mounts with mount(2), other users through fusermount3.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace gshm::core::fuse {

struct MountOptions {
    bool read_only = false;
    std::string subdirectory = {};  // of the store, as the root of the mount; "": the whole store
    std::string source = "gshm";    // shown by mount(8) and df(1)
    bool operator==(const MountOptions&) const = default;
};

// One place where a file system is mounted. A file system is one connection to the kernel. It can have several mounts,
// each with its own options; the kernel enforces `read_only`.
class MountPoint {
public:
    // Makes a file system. Replaces the mount of a daemon that died. EBUSY if another gshmd is mounted there. Sets
    // ret_fd to the descriptor for requests. Of root, without `read_only` and without a subdirectory: see add().
    static Result<MountPoint> create(const std::string& path, const MountOptions& options, UniqueFd* ret_fd);
    // Makes a file system without a mount, which exists as long as the returned descriptor, or a mount. Root only.
    static Result<UniqueFd> create_detached(UniqueFd* ret_fd);
    // Mounts the file system of that descriptor. Its requests must be answered meanwhile. EOPNOTSUPP: only root can.
    static Result<MountPoint> add(const std::string& path, const MountOptions& options, int fd);
    // The existing mount of an earlier daemon.
    static MountPoint find(const std::string& path);
    // All mounts of a file system that this process can see, also those that others have made.
    static std::vector<MountPoint> all_of(const std::string& device);
    MountPoint(MountPoint&&) = default;
    MountPoint& operator=(MountPoint&&) = default;
    MountPoint(const MountPoint&) = default;
    MountPoint& operator=(const MountPoint&) = default;

    const std::string& path() const { return path_; }
    const MountOptions& options() const { return options_; }
    bool is_mounted() const { return !id_.empty(); }
    bool operator==(const MountPoint&) const = default;
    // The number of the file system; "": unknown.
    const std::string& device() const { return device_; }
    // EBUSY while files in it are open. Lazily: it is detached from the path at once, and ends when the last file is
    // closed. No effect if it is not mounted any more.
    Status unmount(bool lazily) const;

    // note() identifies the mount to a later daemon. from_note() is that mount, if it still exists.
    std::string note() const { return id_ + " " + path_; }
    static std::optional<MountPoint> from_note(const std::string& note);
    // Ends a mount that no daemon will serve any more: waiting processes get an error.
    void give_up() const;

private:
    MountPoint(std::string path, std::string id, std::string device = {}, MountOptions options = {})
        : path_(std::move(path)), id_(std::move(id)), device_(std::move(device)), options_(std::move(options)) {}

    std::string path_;
    std::string id_;  // the kernel's; "": not mounted
    std::string device_;
    MountOptions options_;
};

}  // namespace gshm::core::fuse
