#include "mount/recorder.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fmt/core.h>

namespace gshm::core::test {
namespace {

constexpr size_t kLongestShown = 160;
constexpr size_t kShortestRun = 8;  // fewer equal bytes are not written as a run

std::string escaped(unsigned char byte) {
    if (byte == '\\') return "\\\\";
    if (byte >= 0x20 && byte < 0x7f) return std::string(1, static_cast<char>(byte));
    return fmt::format("\\x{:02x}", byte);
}

uint64_t checksum(std::string_view bytes) {  // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

const char* type_name(mode_t mode) {
    switch (mode & S_IFMT) {
        case S_IFREG: return "file";
        case S_IFDIR: return "dir";
        case S_IFLNK: return "symlink";
        case S_IFIFO: return "fifo";
        case S_IFSOCK: return "socket";
        case S_IFCHR: return "char";
        case S_IFBLK: return "block";
        default: return "unknown";
    }
}

}  // namespace

void Recorder::line(std::string_view text) {
    std::string whole = prefix_;
    for (const char c : text) c == '\n' ? whole += "\\x0a" : whole += c;
    whole += '\n';
    std::string_view rest = whole;
    while (!rest.empty()) {
        const ssize_t n = ::write(fd_, rest.data(), rest.size());
        if (n < 0 && errno != EINTR) return;  // the reader is gone
        if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
    }
}

long Recorder::result(std::string_view what, long value) {
    const int code = errno;
    line(value == -1 ? fmt::format("{} = {}", what, errno_name(code)) : fmt::format("{} = {}", what, value));
    errno = code;
    return value;
}

long Recorder::success(std::string_view what, long value) {
    const int code = errno;
    line(fmt::format("{} = {}", what, value == -1 ? errno_name(code) : "ok"));
    errno = code;
    return value;
}

std::string errno_name(int code) {
    const char* name = ::strerrorname_np(code);
    return name ? name : fmt::format("errno {}", code);
}

std::string describe(const struct stat& st) {
    auto text = fmt::format("{} {:04o} nlink={}", type_name(st.st_mode), st.st_mode & 07777, st.st_nlink);
    if (!S_ISDIR(st.st_mode)) text += fmt::format(" size={}", st.st_size);
    text += fmt::format(" uid={} gid={}", st.st_uid, st.st_gid);
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
        text += fmt::format(" rdev={}:{}", major(st.st_rdev), minor(st.st_rdev));
    return text;
}

std::string in_quotes(std::string_view bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size();) {
        size_t end = i + 1;
        while (end < bytes.size() && bytes[end] == bytes[i]) ++end;
        if (end - i < kShortestRun) end = i + 1;
        text += escaped(static_cast<unsigned char>(bytes[i]));
        if (end - i > 1) text += fmt::format("*{} ", end - i);
        i = end;
    }
    if (text.size() > kLongestShown)
        text = fmt::format("{}... ({} bytes, checksum {:016x})", text.substr(0, 32), bytes.size(), checksum(bytes));
    return "'" + text + "'";
}

std::string pattern(size_t size, unsigned seed) {
    std::string bytes(size, '\0');
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15;
    for (auto& byte : bytes) {
        state = state * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<char>(state >> 56);
    }
    return bytes;
}

}  // namespace gshm::core::test
