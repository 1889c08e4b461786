#include "destination.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/core.h>

#include "failure.h"
#include "text.h"

namespace gshm::cli {
namespace {

constexpr std::string_view kSuffix = ".part";

mode_t default_mode() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return 0666 & ~mask;
}

// Where a chain of links leads, so that the link stays and the file behind it is replaced.
std::string resolve(const std::string& path) {
    const std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
    return real ? real.get() : path;
}

}  // namespace

Destination Destination::create(const std::string& path, const std::string& default_name, uint64_t size_bytes) {
    std::string target = path;
    struct stat info {};
    bool exists = ::stat(target.c_str(), &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        target = fmt::format("{}{}{}", target, target.ends_with('/') ? "" : "/", default_name);
        exists = ::stat(target.c_str(), &info) == 0;
        if (exists && S_ISDIR(info.st_mode)) throw Failure(EISDIR, printable(target) + " is a directory");
    }
    if (exists && !S_ISREG(info.st_mode)) {
        Destination direct(target, "", ::open(target.c_str(), O_WRONLY | O_CLOEXEC));
        if (direct.file_.get() < 0) throw Failure::of_errno(target);
        return direct;
    }
    if (exists) target = resolve(target);
    std::string part = fmt::format("{}.XXXXXX{}", target, kSuffix);
    const int fd = ::mkostemps(part.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC);
    if (fd < 0) throw Failure::of_errno(target);
    Destination destination(target, part, fd);
    ::fchmod(fd, exists ? info.st_mode & 07777 : default_mode());
    destination.reserve(size_bytes);
    return destination;
}

Destination::~Destination() {
    if (file_.get() >= 0 && !part_.empty()) ::unlink(part_.c_str());
}

void Destination::reserve(uint64_t size_bytes) {
    if (::fallocate(file_.get(), 0, 0, static_cast<off_t>(size_bytes)) == 0) return;
    const int code = errno;
    if (code != ENOSPC && code != EDQUOT && code != EFBIG) return;  // this file system cannot; writing will tell
    struct statvfs info {};
    std::string free_text;
    if (code == ENOSPC && ::fstatvfs(file_.get(), &info) == 0)
        free_text =
            fmt::format(" ({} needed, {} free)", size_text(size_bytes), size_text(info.f_bavail * info.f_frsize));
    errno = code;
    auto failure = Failure::of_errno(path_);
    throw Failure(code, failure.what() + free_text, "nothing was written");
}

void Destination::write(const void* bytes, size_t count) {
    write_all(file_.get(), bytes, count, path_);
}

void Destination::commit() {
    // The descriptor is gone after this either way; the destructor cannot know the part any more.
    if (!file_.close() || (!part_.empty() && std::rename(part_.c_str(), path_.c_str()) != 0)) {
        const auto failure = Failure::of_errno(path_);
        if (!part_.empty()) ::unlink(part_.c_str());
        throw failure;
    }
}

}  // namespace gshm::cli
