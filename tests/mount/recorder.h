// The log of a scenario: one line per system call with its result. Two file systems behave alike if the same scenario
// yields the same lines in both.
#pragma once

#include <string>
#include <string_view>
#include <sys/stat.h>

namespace gshm::core::test {

// Lines are written to a pipe that another process reads, so that the children of a scenario (other users) write to the
// same log, and the log of a crashed scenario is not lost.
class Recorder {
public:
    explicit Recorder(int fd) : fd_(fd) {}

    void line(std::string_view text);  // newlines in it are escaped
    // The result of a system call: "WHAT = 3", or "WHAT = ENOENT" for -1 (reads errno, so call it at once). Returns
    // `value` and preserves errno.
    long result(std::string_view what, long value);
    // The same for numbers that vary between runs, such as descriptors: "WHAT = ok".
    long success(std::string_view what, long value);
    // Precedes every line from now on: the acting user.
    void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

private:
    int fd_;
    std::string prefix_;
};

std::string errno_name(int code);
// "file 0644 nlink=1 size=5 uid=0 gid=0". Without the size of directories, which depends on the file system.
std::string describe(const struct stat& st);
// Readable bytes: escapes, runs as "\x00*4096", and a checksum instead of the middle of long texts.
std::string in_quotes(std::string_view bytes);
// `size` bytes that look random and depend on the seed alone.
std::string pattern(size_t size, unsigned seed);

}  // namespace gshm::core::test
