#include "mount/calls.h"

#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace gshm::core::test {
namespace {

constexpr size_t kLongestName = 48;
constexpr size_t kMostNames = 40;

std::string shown(const std::string& name) {  // for the log
    if (name.size() > kLongestName) return fmt::format("{}...({} bytes)", in_quotes(name.substr(0, 6)), name.size());
    const auto text = in_quotes(name);
    return text.size() == name.size() + 2 ? name : text;
}

std::string open_flags(int flags) {
    struct Flag {
        int bits;
        const char* name;
    };
    // O_TMPFILE contains O_DIRECTORY, so it goes before it.
    static constexpr Flag kFlags[] = {{O_CREAT, "O_CREAT"},         {O_EXCL, "O_EXCL"},         {O_TRUNC, "O_TRUNC"},
                                      {O_APPEND, "O_APPEND"},       {O_TMPFILE, "O_TMPFILE"},   {O_PATH, "O_PATH"},
                                      {O_DIRECTORY, "O_DIRECTORY"}, {O_NOFOLLOW, "O_NOFOLLOW"}, {O_SYNC, "O_SYNC"},
                                      {O_NONBLOCK, "O_NONBLOCK"},   {O_NOATIME, "O_NOATIME"}};
    static constexpr const char* kAccess[] = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"};
    std::string text = kAccess[flags & O_ACCMODE];
    for (const auto& flag : kFlags) {
        if ((flags & flag.bits) != flag.bits) continue;
        text += std::string("|") + flag.name;
        flags &= ~flag.bits;
    }
    return text;
}

// Sorted, since the order depends on the file system; only counted if there are many.
std::string joined(std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    const auto text = fmt::format("{}", fmt::join(names, " "));
    if (names.size() <= kMostNames) return text;
    return fmt::format("{} of them from {} to {}, {}", names.size(), names.front(), names.back(), in_quotes(text));
}

std::string id(unsigned value) {
    return value == static_cast<unsigned>(-1) ? "-1" : std::to_string(value);
}

}  // namespace

std::string Calls::name_of(int fd) const {
    const auto found = names_.find(fd);
    return found == names_.end() ? fmt::format("fd {}", fd < 0 ? "-1" : "?") : "fd " + found->second;
}

int Calls::opened(int fd, const std::string& name, const std::string& what) {
    recorder_.success(what, fd);
    if (fd >= 0) names_[fd] = shown(name);
    return fd;
}

int Calls::open(const std::string& name, int flags, mode_t mode) {
    const int fd = ::open(at(name).c_str(), flags | O_CLOEXEC, mode);
    return opened(fd, name, fmt::format("open({}, {}, {:04o})", shown(name), open_flags(flags), mode));
}

int Calls::openat(int dir_fd, const std::string& name, int flags, mode_t mode) {
    const int fd = ::openat(dir_fd, name.c_str(), flags | O_CLOEXEC, mode);
    return opened(fd, name,
                  fmt::format("openat({}, {}, {}, {:04o})", name_of(dir_fd), shown(name), open_flags(flags), mode));
}

int Calls::creat(const std::string& name, mode_t mode) {
    return opened(::creat(at(name).c_str(), mode), name, fmt::format("creat({}, {:04o})", shown(name), mode));
}

int Calls::mkdir(const std::string& name, mode_t mode) {
    return recorder_.result(fmt::format("mkdir({}, {:04o})", shown(name), mode), ::mkdir(at(name).c_str(), mode));
}

int Calls::rmdir(const std::string& name) {
    return recorder_.result(fmt::format("rmdir({})", shown(name)), ::rmdir(at(name).c_str()));
}

int Calls::unlink(const std::string& name) {
    return recorder_.result(fmt::format("unlink({})", shown(name)), ::unlink(at(name).c_str()));
}

int Calls::link(const std::string& from, const std::string& to) {
    return recorder_.result(fmt::format("link({}, {})", shown(from), shown(to)),
                            ::link(at(from).c_str(), at(to).c_str()));
}

int Calls::symlink(const std::string& target, const std::string& name) {
    // Only such a target would put the path of the directory into the log.
    const auto text = target.starts_with(dir_) ? "DIR" + target.substr(dir_.size()) : target;
    return recorder_.result(fmt::format("symlink({}, {})", shown(text), shown(name)),
                            ::symlink(target.c_str(), at(name).c_str()));
}

int Calls::readlink(const std::string& name, size_t size) {
    std::string target(size, '\0');
    const ssize_t n = ::readlink(at(name).c_str(), target.data(), size);
    recorder_.result(fmt::format("readlink({}, {})", shown(name), size), n);
    if (n >= 0) recorder_.line("  -> " + in_quotes(target.substr(0, static_cast<size_t>(n))));
    return static_cast<int>(n);
}

int Calls::rename(const std::string& from, const std::string& to) {
    return recorder_.result(fmt::format("rename({}, {})", shown(from), shown(to)),
                            ::rename(at(from).c_str(), at(to).c_str()));
}

int Calls::renameat2(const std::string& from, const std::string& to, unsigned flags) {
    const int result = ::renameat2(AT_FDCWD, at(from).c_str(), AT_FDCWD, at(to).c_str(), flags);
    return recorder_.result(fmt::format("renameat2({}, {}, {:#x})", shown(from), shown(to), flags), result);
}

int Calls::mknod(const std::string& name, mode_t mode, dev_t device) {
    return recorder_.result(fmt::format("mknod({}, {:07o})", shown(name), mode),
                            ::mknod(at(name).c_str(), mode, device));
}

int Calls::truncate(const std::string& name, off_t size) {
    return recorder_.result(fmt::format("truncate({}, {})", shown(name), size), ::truncate(at(name).c_str(), size));
}

int Calls::chmod(const std::string& name, mode_t mode) {
    return recorder_.result(fmt::format("chmod({}, {:04o})", shown(name), mode), ::chmod(at(name).c_str(), mode));
}

int Calls::chown(const std::string& name, uid_t uid, gid_t gid) {
    return recorder_.result(fmt::format("chown({}, {}, {})", shown(name), id(uid), id(gid)),
                            ::chown(at(name).c_str(), uid, gid));
}

int Calls::lchown(const std::string& name, uid_t uid, gid_t gid) {
    return recorder_.result(fmt::format("lchown({}, {}, {})", shown(name), id(uid), id(gid)),
                            ::lchown(at(name).c_str(), uid, gid));
}

int Calls::access(const std::string& name, int mode) {
    std::string text = mode == F_OK ? "F" : "";
    for (const auto& [bit, letter] : {std::pair{R_OK, 'R'}, {W_OK, 'W'}, {X_OK, 'X'}})
        if (mode & bit) text += letter;
    return recorder_.result(fmt::format("access({}, {})", shown(name), text), ::access(at(name).c_str(), mode));
}

int Calls::stat(const std::string& name) {
    struct stat st{};
    if (::lstat(at(name).c_str(), &st) != 0) return recorder_.result(fmt::format("lstat({})", shown(name)), -1);
    recorder_.line(fmt::format("  {}: {}", shown(name), describe(st)));
    return 0;
}

int Calls::stat_target(const std::string& name) {
    struct stat st{};
    if (::stat(at(name).c_str(), &st) != 0) return recorder_.result(fmt::format("stat({})", shown(name)), -1);
    recorder_.line(fmt::format("  target of {}: {}", shown(name), describe(st)));
    return 0;
}

void Calls::list(const std::string& name) {
    DIR* stream = ::opendir(at(name).c_str());
    if (!stream) {
        recorder_.success(fmt::format("opendir({})", shown(name)), -1);
        return;
    }
    static const std::map<int, const char*> kTypes = {{DT_REG, ""},   {DT_DIR, "/"}, {DT_LNK, "@"}, {DT_FIFO, "|"},
                                                      {DT_SOCK, "="}, {DT_CHR, "%"}, {DT_BLK, "#"}, {DT_WHT, "!"}};
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(stream)) {
        const auto type = kTypes.find(entry->d_type);
        names.push_back(shown(entry->d_name) + (type == kTypes.end() ? "?" : type->second));
    }
    ::closedir(stream);
    recorder_.line(fmt::format("  entries of {}: {}", shown(name), joined(std::move(names))));
}

void Calls::same_inode(const std::string& a, const std::string& b) {
    struct stat sa{}, sb{};
    const bool both = ::lstat(at(a).c_str(), &sa) == 0 && ::lstat(at(b).c_str(), &sb) == 0;
    const bool same = both && sa.st_ino == sb.st_ino && sa.st_dev == sb.st_dev;
    recorder_.line(fmt::format("  {} and {}: {}", shown(a), shown(b), same ? "one inode" : "not one inode"));
}

void Calls::make(const std::string& name, std::string_view bytes, mode_t mode) {
    const int fd = ::open(at(name).c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        recorder_.success(fmt::format("making {}", shown(name)), -1);
    if (fd >= 0) close(fd);
}

void Calls::content(const std::string& name) {
    const int fd = ::open(at(name).c_str(), O_RDONLY | O_CLOEXEC);
    std::string bytes, block(65536, '\0');
    ssize_t n = fd < 0 ? -1 : 0;
    while (fd >= 0 && (n = ::read(fd, block.data(), block.size())) > 0) bytes.append(block, 0, static_cast<size_t>(n));
    if (n < 0) recorder_.success(fmt::format("reading {}", shown(name)), -1);
    else recorder_.line(fmt::format("  bytes of {}: {}", shown(name), in_quotes(bytes)));
    if (fd >= 0) close(fd);
}

void Calls::close(int fd) {
    if (fd >= 0 && ::close(fd) != 0) recorder_.result(fmt::format("close({})", name_of(fd)), -1);
    names_.erase(fd);
}

int Calls::adopt(int fd, std::string label) {
    recorder_.success(label, fd);
    if (fd >= 0) names_[fd] = std::move(label);
    return fd;
}

int Calls::dup(int fd) {
    const auto name = names_.contains(fd) ? names_[fd] : "?";
    return opened(::fcntl(fd, F_DUPFD_CLOEXEC, 3), "copy of " + name, fmt::format("dup({})", name_of(fd)));
}

ssize_t Calls::write(int fd, std::string_view bytes) {
    return recorder_.result(fmt::format("write({}, {})", name_of(fd), in_quotes(bytes)),
                            ::write(fd, bytes.data(), bytes.size()));
}

ssize_t Calls::pwrite(int fd, std::string_view bytes, off_t offset) {
    return recorder_.result(fmt::format("pwrite({}, {}, at {})", name_of(fd), in_quotes(bytes), offset),
                            ::pwrite(fd, bytes.data(), bytes.size(), offset));
}

ssize_t Calls::read(int fd, size_t size) {
    std::string bytes(size, '\0');
    const ssize_t n = recorder_.result(fmt::format("read({}, {})", name_of(fd), size), ::read(fd, bytes.data(), size));
    if (n > 0) recorder_.line("  -> " + in_quotes(std::string_view(bytes).substr(0, static_cast<size_t>(n))));
    return n;
}

ssize_t Calls::pread(int fd, size_t size, off_t offset) {
    std::string bytes(size, '\0');
    const ssize_t n = recorder_.result(fmt::format("pread({}, {}, at {})", name_of(fd), size, offset),
                                       ::pread(fd, bytes.data(), size, offset));
    if (n > 0) recorder_.line("  -> " + in_quotes(std::string_view(bytes).substr(0, static_cast<size_t>(n))));
    return n;
}

off_t Calls::seek(int fd, off_t offset, int whence) {
    static constexpr const char* kWhence[] = {"SET", "CUR", "END", "DATA", "HOLE"};
    const std::string base = whence >= 0 && whence < 5 ? kWhence[whence] : std::to_string(whence);
    return recorder_.result(fmt::format("lseek({}, {}, {})", name_of(fd), offset, base), ::lseek(fd, offset, whence));
}

int Calls::ftruncate(int fd, off_t size) {
    return recorder_.result(fmt::format("ftruncate({}, {})", name_of(fd), size), ::ftruncate(fd, size));
}

int Calls::fallocate(int fd, int mode, off_t offset, off_t size) {
    return recorder_.result(fmt::format("fallocate({}, mode {:#x}, at {}, {})", name_of(fd), mode, offset, size),
                            ::fallocate(fd, mode, offset, size));
}

int Calls::fchmod(int fd, mode_t mode) {
    return recorder_.result(fmt::format("fchmod({}, {:04o})", name_of(fd), mode), ::fchmod(fd, mode));
}

int Calls::fchown(int fd, uid_t uid, gid_t gid) {
    return recorder_.result(fmt::format("fchown({}, {}, {})", name_of(fd), id(uid), id(gid)), ::fchown(fd, uid, gid));
}

int Calls::fstat(int fd) {
    struct stat st{};
    if (::fstat(fd, &st) != 0) return recorder_.result(fmt::format("fstat({})", name_of(fd)), -1);
    recorder_.line(fmt::format("  {}: {}", name_of(fd), describe(st)));
    return 0;
}

char* Calls::map(int fd, size_t size, int protection, int flags, off_t offset) {
    void* address = ::mmap(nullptr, size, protection, flags, fd, offset);
    recorder_.success(fmt::format("mmap({}, {}, {}{}, {}, at {})", name_of(fd), size, protection & PROT_READ ? "R" : "",
                                  protection & PROT_WRITE ? "W" : "", flags & MAP_SHARED ? "shared" : "private",
                                  offset),
                      address == MAP_FAILED ? -1 : 0);
    return address == MAP_FAILED ? nullptr : static_cast<char*>(address);
}

int Calls::set_attribute(const std::string& name, const std::string& attribute, std::string_view value, int flags) {
    const int result = ::lsetxattr(at(name).c_str(), attribute.c_str(), value.data(), value.size(), flags);
    return recorder_.result(
        fmt::format("setxattr({}, {}, {}, {})", shown(name), shown(attribute), in_quotes(value), flags), result);
}

ssize_t Calls::attribute(const std::string& name, const std::string& attribute, size_t size) {
    std::string value(size, '\0');
    const ssize_t n = ::lgetxattr(at(name).c_str(), attribute.c_str(), value.data(), size);
    recorder_.result(fmt::format("getxattr({}, {}, size {})", shown(name), shown(attribute), size), n);
    if (n > 0 && size > 0)
        recorder_.line("  -> " + in_quotes(std::string_view(value).substr(0, static_cast<size_t>(n))));
    return n;
}

void Calls::list_attributes(const std::string& name) {
    std::string block(65536, '\0');
    const ssize_t n = ::llistxattr(at(name).c_str(), block.data(), block.size());
    if (n < 0) {
        recorder_.success(fmt::format("listxattr({})", shown(name)), n);
        return;
    }
    std::vector<std::string> ours;
    for (size_t i = 0; i < static_cast<size_t>(n);) {
        const std::string attribute = block.c_str() + i;
        if (attribute.starts_with("user.test.")) ours.push_back(shown(attribute));
        i += attribute.size() + 1;
    }
    recorder_.line(fmt::format("  attributes of {}: {}", shown(name), joined(std::move(ours))));
}

int Calls::remove_attribute(const std::string& name, const std::string& attribute) {
    return recorder_.result(fmt::format("removexattr({}, {})", shown(name), shown(attribute)),
                            ::lremovexattr(at(name).c_str(), attribute.c_str()));
}

}  // namespace gshm::core::test
