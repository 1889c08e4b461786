#include "memory/tier_disk.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapshot/block_file.h"

namespace gshm::core {
namespace {

template <typename Call>
auto uninterrupted(Call&& call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

}  // namespace

TierDisk& TierDisk::kernel() {
    static TierDisk disk;
    return disk;
}

int TierDisk::open(int folder, const char* name, int flags) {
    return uninterrupted(
        [&] { return ::openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600); });
}

ssize_t TierDisk::read(int file, std::span<std::byte> into, uint64_t at) {
    return uninterrupted([&] { return ::pread(file, into.data(), into.size(), static_cast<off_t>(at)); });
}

ssize_t TierDisk::write(int file, std::span<const std::byte> from, uint64_t at) {
    return uninterrupted([&] { return ::pwrite(file, from.data(), from.size(), static_cast<off_t>(at)); });
}

int TierDisk::allocate(int file, uint64_t bytes) {
    return uninterrupted([&] { return ::fallocate(file, 0, 0, static_cast<off_t>(bytes)); });
}

int TierDisk::resize(int file, uint64_t bytes) {
    return uninterrupted([&] { return ::ftruncate(file, static_cast<off_t>(bytes)); });
}

int TierDisk::punch(int file, uint64_t at, uint64_t bytes) {
    return uninterrupted([&] {
        return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                           static_cast<off_t>(bytes));
    });
}

int TierDisk::sync(int file) {
    return uninterrupted([&] { return ::fsync(file); });
}

int TierDisk::rename(int folder, const char* from, const char* to) {
    return ::renameat(folder, from, folder, to);
}

int TierDisk::remove(int folder, const char* name) {
    return ::unlinkat(folder, name, 0);
}

Result<UniqueFd> TierDisk::open_file(int folder, const std::string& name, int flags, bool direct,
                                     const std::string& what) {
    auto file = UniqueFd::adopt(open(folder, name.c_str(), flags | (direct ? O_DIRECT : 0)));
    // For example tmpfs before Linux 6.6. With O_CREAT the file may exist now.
    if (!file && direct && errno == EINVAL) file = UniqueFd::adopt(open(folder, name.c_str(), flags & ~O_EXCL));
    if (!file) return fail_errno(what.c_str());
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) return fail_errno(what.c_str());
    if (!S_ISREG(status.st_mode)) return fail(ENOTSUP, "{} is not a regular file", what);
    return file;
}

Result<size_t> TierDisk::read_all(int file, std::span<std::byte> into, uint64_t at, const std::string& what) {
    size_t done = 0;
    while (done < into.size()) {
        const ssize_t count = read(file, into.subspan(done), at + done);
        if (count < 0) return fail_errno(what.c_str());
        done += static_cast<size_t>(count);
        // A part of a block is read at the end only; direct reads could not continue there.
        if (count == 0 || done % kBlockBytes != 0) break;
    }
    return done;
}

Status TierDisk::write_all(int file, std::span<const std::byte> from, uint64_t at, const std::string& what) {
    while (!from.empty()) {
        const ssize_t count = write(file, from, at);
        if (count < 0) return fail_errno(what.c_str());
        // A nearly full disk may accept a part. The next attempt reports the error.
        auto done = static_cast<size_t>(count);
        if (done < from.size()) done = done / kBlockBytes * kBlockBytes;
        if (done == 0) return fail_errno(what.c_str(), ENOSPC);
        from = from.subspan(done);
        at += done;
    }
    return {};
}

Result<std::vector<std::string>> names_in(int folder, const std::string& what) {
    std::vector<std::string> names;
    auto again = UniqueFd::adopt(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR* listed = again ? ::fdopendir(again.get()) : nullptr;
    if (listed == nullptr) return fail_errno(what.c_str());
    (void)again.take();
    errno = 0;
    while (const dirent* entry = ::readdir(listed)) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;
    }
    const int error = errno;
    ::closedir(listed);
    if (error != 0) return fail_errno(what.c_str(), error);
    return names;
}

}  // namespace gshm::core
