#include "cli/copy/destination.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr std::string_view kSuffix = ".part";

// Asked once: asking changes it for a moment, for all threads.
mode_t default_mode() {
    static const mode_t mode = [] {
        const mode_t mask = ::umask(0);
        ::umask(mask);
        return 0666 & ~mask;
    }();
    return mode;
}

// For mkostemps().
std::string part_pattern(const std::string& target) {
    return fmt::format("{}.XXXXXX{}", target, kSuffix);
}

// Where a chain of links leads, so that the link stays and the file behind it is replaced.
std::string resolve(const std::string& path) {
    const std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
    return real ? real.get() : path;
}

}  // namespace

Destination Destination::create(const std::string& path, uint64_t size_bytes) {
    std::string target = path;
    struct stat info {};
    const bool exists = ::stat(target.c_str(), &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) throw Failure(EISDIR, printable(target) + " is a directory");
    if (exists) target = resolve(target);
    const auto slash = target.rfind('/');
    const auto folder = slash == target.npos ? "." : slash == 0 ? "/" : target.substr(0, slash);
    std::string part;
    int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        part = part_pattern(target);
        fd = ::mkostemps(part.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC);
    }
    if (fd < 0) throw Failure::of_errno(target);
    Destination destination(target, part, fd, size_bytes);
    ::fchmod(fd, exists ? info.st_mode & 0777 : default_mode());
    destination.reserve();
    return destination;
}

Destination::~Destination() {
    if (file_.get() >= 0 && !part_.empty()) ::unlink(part_.c_str());
}

void Destination::reserve() const {
    if (size_bytes_ == 0 || ::fallocate(file_.get(), 0, 0, static_cast<off_t>(size_bytes_)) == 0) return;
    // Others mean that this file system cannot; writing will tell.
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) throw failure(errno);
}

Failure Destination::failure(int code) const {
    struct statvfs info {};
    std::string sizes;
    if (code == ENOSPC && ::fstatvfs(file_.get(), &info) == 0) {
        // What the part itself takes is free again in a moment.
        struct stat part {};
        const uint64_t taken = ::fstat(file_.get(), &part) == 0 ? static_cast<uint64_t>(part.st_blocks) * 512 : 0;
        sizes = fmt::format(" ({} needed, {} free)", size_text(size_bytes_),
                            size_text(info.f_bavail * info.f_frsize + taken));
    }
    errno = code;
    const auto plain = Failure::of_errno(path_);
    return {code, plain.exit_code(), plain.what() + sizes, "nothing was written"};
}

// A nameless file gets a name beside the target first if that exists, since a link does not replace.
void Destination::give_name() {
    if (part_.empty()) {
        const auto self = fmt::format("/proc/self/fd/{}", file_.get());
        if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
        if (errno != EEXIST) throw Failure::of_errno(path_);
        // One that another has chosen as well is tried again with other letters.
        for (int attempt = 0; part_.empty(); ++attempt) {
            auto part = part_pattern(path_);
            const int placeholder = ::mkostemps(part.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC);
            if (placeholder < 0) throw Failure::of_errno(path_);
            ::close(placeholder);
            ::unlink(part.c_str());
            if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) == 0)
                part_ = part;
            else if (errno != EEXIST || attempt > 100)
                throw Failure::of_errno(path_);
        }
    }
    if (std::rename(part_.c_str(), path_.c_str()) != 0) throw Failure::of_errno(path_);
    part_.clear();
}

void Destination::commit() {
    // Errors that a file system tells of only when a file is closed must be known before it has its name. The
    // descriptor itself is needed until then, so that of a copy is closed.
    FileDescriptor copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 3));
    if (copy.get() < 0 || !copy.close()) throw Failure::of_errno(path_);
    give_name();
    file_.close();
}

}  // namespace gshm::cli
