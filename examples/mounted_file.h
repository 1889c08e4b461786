// A file in a mount of gshmd, accessed with ordinary system calls: creat, truncate, stat, getxattr.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fabric_memory.h"
#include <gshm/gshm.hpp>

[[noreturn]] inline void fail(int code, const std::string& message) {
    throw gshm::Exception({code, message});
}
[[noreturn]] inline void fail_errno(const std::string& what, int code = errno) {
    fail(code, what + ": " + std::strerror(code));
}

// Throws unless a FUSE file system is mounted there; otherwise the file would be an ordinary one.
inline void require_mount(const std::string& folder) {
    struct statfs found = {};
    const int result = ::statfs(folder.c_str(), &found);
    if (result != 0 && errno != ENOENT) fail_errno(folder);
    if (result != 0 || static_cast<unsigned long>(found.f_type) != FUSE_SUPER_MAGIC)
        fail(ENODEV,
             "nothing is mounted at " + folder + "; start gshmd first: mkdir -p " + folder + " && gshmd " + folder);
}

class MountedFile {
public:
    // Creates the file, or truncates it to 0. device: "cuda:1", "host"; empty: the daemon's first.
    static MountedFile create(std::string path, const std::string& device) {
        const int fd = ::creat(path.c_str(), 0644);
        if (fd < 0) fail_errno("creating " + path);
        ::close(fd);
        if (!device.empty() && ::setxattr(path.c_str(), "user.device", device.data(), device.size(), 0) != 0)
            fail_errno("choosing the device " + device + " for " + path);
        return MountedFile(std::move(path));
    }
    static MountedFile find(std::string path) {
        struct stat found = {};
        if (::stat(path.c_str(), &found) != 0)
            fail_errno(path + (errno == ENOENT ? ", which test_client --parent makes" : ""));
        return MountedFile(std::move(path));
    }

    // Allocates memory, from size 0.
    void truncate(uint64_t bytes) const {
        if (::truncate(path_.c_str(), static_cast<off_t>(bytes)) != 0)
            fail_errno("truncating " + path_ + " to " + std::to_string(bytes) + " bytes");
    }

    const std::string& path() const { return path_; }
    uint64_t size() const {
        struct stat found = {};
        if (::stat(path_.c_str(), &found) != 0) fail_errno(path_);
        return static_cast<uint64_t>(found.st_size);
    }
    // The physical size of the file's memory, which a handle refers to.
    uint64_t allocation_size() const {
        const auto text = attribute("user.allocation_size");
        if (!text && text.error().code == ENODATA) fail(ENODATA, path_ + " has no memory: truncate it to a size first");
        const std::string value = text.value();
        uint64_t bytes = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
        if (error != std::errc() || end != value.data() + value.size() || bytes < size())
            fail(EPROTO, path_ + ": user.allocation_size is \"" + value + "\"");
        return bytes;
    }
    std::string device() const { return attribute("user.device").value(); }
    // ENODATA or EOPNOTSUPP if the device has none.
    gshm::Result<FabricHandle> fabric_handle() const {
        const auto bytes = attribute("user.fabric_handle");
        if (!bytes) return bytes.error();
        FabricHandle handle;
        if (bytes->size() != handle.size())
            return gshm::Error{EPROTO, "user.fabric_handle has " + std::to_string(bytes->size()) + " bytes"};
        std::memcpy(handle.data(), bytes->data(), handle.size());
        return handle;
    }

private:
    explicit MountedFile(std::string path) : path_(std::move(path)) {}

    gshm::Result<std::string> attribute(const char* name) const {
        char value[256];
        const ssize_t bytes = ::getxattr(path_.c_str(), name, value, sizeof value);
        if (bytes < 0) return gshm::Error{errno, std::string(name) + ": " + std::strerror(errno)};
        return std::string(value, static_cast<size_t>(bytes));
    }

    std::string path_;
};
