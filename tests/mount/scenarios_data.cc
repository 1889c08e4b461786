// Bytes: reading and writing at various offsets and by various calls.
#include <cstdint>
#include <fcntl.h>
#include <limits>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

constexpr off_t kFarthest = std::numeric_limits<off_t>::max();

void read_and_write(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.read(fd, 10);
    c.write(fd, "0123456789");
    c.read(fd, 10);
    c.seek(fd, 0, SEEK_CUR);
    c.pread(fd, 4, 3);
    c.pread(fd, 100, 3);
    c.pread(fd, 4, 10);
    c.pread(fd, 4, 11);
    c.pread(fd, 4, 1 << 20);
    c.pread(fd, 0, 0);
    c.pwrite(fd, "XY", 4);
    c.pwrite(fd, "", 500);  // does not extend the file
    c.fstat(fd);
    c.seek(fd, 0, SEEK_CUR);
    c.pwrite(fd, "tail", 20);
    c.content("f");
    c.pwrite(fd, "far", 100'000);
    c.pread(fd, 200'000, 0);
    c.seek(fd, 0, SEEK_SET);
    c.write(fd, pattern(300'000, 1));
    c.content("f");
    c.fstat(fd);
}

void bad_arguments(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.write(fd, "0123456789");
    char byte = 0;
    recorder.result("pread at -1", ::pread(fd, &byte, 1, -1));
    recorder.result("pwrite at -1", ::pwrite(fd, "x", 1, -1));
    recorder.result("pwrite at the farthest place", ::pwrite(fd, "x", 1, kFarthest));
    recorder.result("pread at the farthest place", ::pread(fd, &byte, 1, kFarthest));
    auto* nowhere = reinterpret_cast<char*>(static_cast<uintptr_t>(8));
    recorder.result("write from nowhere", ::syscall(SYS_write, fd, nowhere, 10));
    recorder.result("pread to nowhere", ::syscall(SYS_pread64, fd, nowhere, 10, 0));
    c.seek(fd, -1, SEEK_SET);
    c.seek(fd, -11, SEEK_END);
    c.seek(fd, 5, 99);
    c.seek(fd, kFarthest, SEEK_SET);
    c.seek(fd, 1, SEEK_CUR);
    c.seek(fd, 0, SEEK_CUR);
    c.seek(fd, 1 << 30, SEEK_SET);
    c.read(fd, 10);
    c.fstat(fd);
    c.content("f");
}

void seeking(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.write(fd, "0123456789");
    c.seek(fd, -3, SEEK_END);
    c.read(fd, 10);
    c.seek(fd, 5, SEEK_END);
    c.write(fd, "after a gap");
    c.content("f");
    const int other = c.open("f", O_WRONLY | O_APPEND);
    c.write(other, "+");
    c.seek(fd, 0, SEEK_END);  // sees the bytes that another descriptor appended
    c.truncate("f", 3);
    c.seek(fd, 0, SEEK_END);
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    c.seek(folder, 0, SEEK_SET);
    c.seek(folder, 0, SEEK_CUR);
}

void truncating(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "0123456789");
    const int fd = c.open("f", O_RDWR);
    c.truncate("f", 5);
    c.content("f");
    c.truncate("f", 12);  // truncated bytes do not come back
    c.content("f");
    c.ftruncate(fd, 10'000);
    c.pread(fd, 20'000, 0);
    c.ftruncate(fd, 4097);
    c.pwrite(fd, "x", 8191);
    c.pread(fd, 20'000, 0);
    c.ftruncate(fd, 0);
    c.ftruncate(fd, 10);
    c.content("f");
    c.seek(fd, 8, SEEK_SET);
    c.ftruncate(fd, 2);
    c.write(fd, "beyond");  // the offset is unchanged
    c.content("f");
    c.ftruncate(fd, -1);
    c.truncate("f", -1);
    c.truncate("none", 0);
    c.truncate("f/x", 0);
    c.truncate("none", -1);
    c.mkdir("d", 0755);
    c.truncate("d", 0);
    c.fstat(fd);
}

// A file system need not support files of this size, but only two results are valid.
void truncating_to_something_huge(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    constexpr off_t kHuge = 999'999'999'999'999;
    const bool done = ::truncate(c.at("f").c_str(), kHuge) == 0;
    const bool known = done || errno == EFBIG;
    recorder.line(fmt::format("truncate to something huge: {}", known ? "EFBIG or success" : errno_name(errno)));
    struct stat st{};
    ::stat(c.at("f").c_str(), &st);
    recorder.line(fmt::format("  size {}", st.st_size == (done ? kHuge : 5) ? "as answered" : "something else"));
    c.truncate("f", 5);
    c.content("f");
}

void vectors(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    std::string parts[3] = {"one ", "", "three"};
    iovec out[3];
    for (int i = 0; i < 3; ++i) out[i] = {parts[i].data(), parts[i].size()};
    recorder.result("writev", ::writev(fd, out, 3));
    recorder.result("pwritev", ::pwritev(fd, out, 3, 100));
    recorder.result("writev of none", ::writev(fd, out, 0));
    recorder.result("writev of a negative number", ::syscall(SYS_writev, fd, out, -1));
    recorder.result("writev of too many", ::syscall(SYS_writev, fd, out, 1025));
    c.content("f");
    char a[6] = {}, b[200] = {};
    iovec in[2] = {{a, 5}, {b, sizeof b}};
    recorder.result("preadv", ::preadv(fd, in, 2, 2));
    recorder.line("  -> " + in_quotes({a, 5}) + " " + in_quotes({b, sizeof b}));
    recorder.result("readv", ::readv(fd, in, 2));
    recorder.result("preadv2 at the offset", ::preadv2(fd, in, 2, -1, 0));
    recorder.result("pwritev2(RWF_APPEND)", ::pwritev2(fd, out, 3, 0, RWF_APPEND));
    c.content("f");
    // More vectors than fit a page.
    std::string bytes = pattern(1000, 2);
    iovec many[1000];
    for (size_t i = 0; i < 1000; ++i) many[i] = {bytes.data() + i, 1};
    recorder.result("pwritev of many", ::pwritev(fd, many, 1000, 0));
    c.content("f");
}

void copying_ranges(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("from", "0123456789");
    c.make("to", "abcdefghijklmno");
    const int from = c.open("from", O_RDWR);
    const int to = c.open("to", O_RDWR);
    const auto copy = [&](const std::string& what, int in, off_t in_at, int out, off_t out_at, size_t size,
                          unsigned flags = 0) {
        recorder.result("copy_file_range " + what, ::copy_file_range(in, &in_at, out, &out_at, size, flags));
    };
    copy("inside", from, 2, to, 3, 4);
    c.content("to");
    copy("past the source's end", from, 8, to, 0, 100);
    copy("from the end", from, 10, to, 0, 100);
    copy("from beyond the end", from, 50, to, 0, 100);
    copy("to beyond the end", from, 0, to, 30, 5);
    copy("of nothing", from, 0, to, 0, 0);
    c.content("to");
    copy("within a file", to, 0, to, 20, 5);
    copy("onto itself", to, 0, to, 2, 5);
    copy("onto the same place", to, 3, to, 3, 5);
    copy("side by side", to, 0, to, 5, 5);
    c.content("to");
    copy("with a flag", from, 0, to, 0, 1, 1);
    copy("at a negative offset", from, -1, to, 0, 1);
    copy("into what is read only", from, 0, c.open("to", O_RDONLY), 0, 1);
    copy("from what is write only", c.open("from", O_WRONLY), 0, to, 0, 1);
    copy("into what appends", from, 0, c.open("to", O_WRONLY | O_APPEND), 0, 1);
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    copy("from a directory", folder, 0, to, 0, 1);
    recorder.result("with the descriptors' offsets", ::copy_file_range(from, nullptr, to, nullptr, 3, 0));
    c.seek(from, 0, SEEK_CUR);
    c.seek(to, 0, SEEK_CUR);
    c.make("big", pattern(200'001, 3));
    const int big = c.open("big", O_RDONLY);
    off_t done = 0;
    while (done < 200'001) {  // a call may copy fewer bytes
        off_t in_at = done, out_at = done + 7;
        const ssize_t n = ::copy_file_range(big, &in_at, to, &out_at, static_cast<size_t>(200'001 - done), 0);
        if (n <= 0) break;
        done += n;
    }
    recorder.line(fmt::format("  {} copied", done));
    c.content("to");
}

void sending(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("from", "0123456789");
    const int from = c.open("from", O_RDONLY);
    const int to = c.open("to", O_CREAT | O_RDWR, 0644);
    int ends[2] = {-1, -1};
    recorder.result("pipe", ::pipe2(ends, O_CLOEXEC));
    off_t offset = 3;
    recorder.result("sendfile to a pipe", ::sendfile(ends[1], from, &offset, 100));
    c.adopt(ends[0], "pipe");
    c.read(ends[0], 100);
    recorder.result("sendfile to a file", ::sendfile(to, from, nullptr, 6));
    recorder.result("sendfile of the rest", ::sendfile(to, from, nullptr, 6));
    recorder.result("sendfile at the end", ::sendfile(to, from, nullptr, 6));
    c.content("to");
    offset = 0;
    recorder.result("splice to a pipe", ::splice(from, &offset, ends[1], nullptr, 5, 0));
    offset = 20;
    recorder.result("splice from a pipe", ::splice(ends[0], nullptr, to, &offset, 5, 0));
    c.content("to");
}

// Effects of one descriptor or name are visible to all others at once.
void coherence(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "first");
    c.link("f", "g");
    const int a = c.open("f", O_RDWR);
    const int b = c.open("g", O_RDWR);
    c.pread(b, 100, 0);
    c.pwrite(a, "SECOND", 0);
    c.fstat(b);
    c.stat("g");
    c.pread(b, 100, 0);
    c.ftruncate(b, 2);
    c.fstat(a);
    c.pread(a, 100, 0);
    c.in_child("another process", [&] {
        const int fd = c.open("f", O_RDWR);
        c.pread(fd, 100, 0);
        c.pwrite(fd, "from the child", 0);
        return 0;
    });
    c.pread(a, 100, 0);
    c.stat("f");
    c.fchmod(a, 0600);
    c.stat("g");
}

void size_limit(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10'000, 10'000};
    recorder.result("setrlimit", ::setrlimit(RLIMIT_FSIZE, &limit));
    c.pwrite(fd, "xxxxxxxxxx", 9'995);
    c.pwrite(fd, "x", 10'000);
    c.ftruncate(fd, 10'001);
    c.ftruncate(fd, 10'000);
    c.truncate("f", 20'000);
    c.fallocate(fd, 0, 0, 20'000);
    c.fstat(fd);
}

constexpr Scenario kScenarios[] = {
    {"data_read_and_write", read_and_write, false},
    {"data_bad_arguments", bad_arguments, false},
    {"data_seeking", seeking, false},
    {"data_truncating", truncating, false},
    {"data_truncating_huge", truncating_to_something_huge, false},
    {"data_vectors", vectors, false},
    {"data_copying_ranges", copying_ranges, false},
    {"data_sending", sending, false},
    {"data_coherence", coherence, false},
    {"data_size_limit", size_limit, false},
};

}  // namespace

std::span<const Scenario> data_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
