#include "client/files/new_file.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace gshm::core::client {

Result<NewFile> NewFile::create(const std::string& path) {
    struct stat status = {};
    const bool exists = stat(path.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) return fail(EISDIR, "{} is a directory", path);
    if (exists && !S_ISREG(status.st_mode)) return fail(EINVAL, "{} is not a regular file", path);
    // The target of a link is replaced, not the link.
    std::unique_ptr<char, decltype(&free)> real(exists ? realpath(path.c_str(), nullptr) : nullptr, &free);
    std::string target = real ? real.get() : path;
    static std::atomic<unsigned> count = 0;
    std::string part = fmt::format("{}.gshm-{}-{}", target, getpid(), ++count);
    const auto slash = target.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
    // Unnamed if the file system supports it, so that a killed process leaves no file behind.
    auto file = UniqueFd::adopt(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    const bool is_named = !file;
    if (!file) file = UniqueFd::adopt(open(part.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
    if (!file) return fail_errno(path.c_str());
    if (exists) fchmod(file.get(), status.st_mode & 0777);
    return NewFile(std::move(target), std::move(part), std::move(file), is_named);
}

NewFile::~NewFile() {
    if (file_ && is_named_) unlink(part_.c_str());
}

Status NewFile::reserve(uint64_t bytes) const {
    if (bytes == 0 || fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    const int code = errno;
    if (code != ENOSPC && code != EDQUOT && code != EFBIG) return {};  // the write reports it
    struct statvfs room = {};
    if (code != ENOSPC || fstatvfs(file_.get(), &room) != 0) return fail_errno(path_.c_str(), code);
    return fail(code, "{}: {} ({} bytes needed, {} free)", path_, strerror(code), bytes, room.f_bavail * room.f_frsize);
}

Status NewFile::commit() {
    const auto put = [&] {
        const std::string itself = fmt::format("/proc/self/fd/{}", file_.get());
        if (!is_named_ && linkat(AT_FDCWD, itself.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0)
            return false;
        is_named_ = true;
        // Some file systems report a write error only at close.
        return close(file_.take()) == 0 && rename(part_.c_str(), path_.c_str()) == 0;
    };
    if (put()) return {};
    auto failed = fail_errno(path_.c_str());
    if (is_named_) unlink(part_.c_str());
    return failed;
}

}  // namespace gshm::core::client
