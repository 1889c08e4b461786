// Space in files: fallocate, holes, and lseek with SEEK_HOLE and SEEK_DATA.
#include <fcntl.h>
#include <limits>
#include <linux/falloc.h>
#include <string>
#include <unistd.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
constexpr off_t kMiB = 1 << 20;

void allocating(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.fallocate(fd, 0, 0, 100);
    c.fstat(fd);
    c.pread(fd, 200, 0);
    c.pwrite(fd, "bytes", 10);
    c.fallocate(fd, 0, 0, 50);
    c.fstat(fd);
    c.fallocate(fd, 0, 5'000, 5'000);
    c.fstat(fd);
    c.pread(fd, 20'000, 0);
    c.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 50'000);
    c.fstat(fd);
    c.ftruncate(fd, 30'000);
    c.pread(fd, 40'000, 0);
    recorder.line("posix_fallocate: " + errno_name(::posix_fallocate(fd, 0, 60'000)));
    c.fstat(fd);
}

void allocating_refused(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.write(fd, "bytes");
    c.fallocate(fd, 0, 0, 0);
    c.fallocate(fd, 0, -1, 10);
    c.fallocate(fd, 0, 0, -1);
    c.fallocate(fd, 0, std::numeric_limits<off_t>::max(), 10);
    c.fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10);  // invalid without FALLOC_FL_KEEP_SIZE
    c.fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
    c.fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096);
    c.fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096);
    c.fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096);
    c.fallocate(fd, 0x8000, 0, 10);
    c.mknod("p", S_IFIFO | 0644);
    const int fifo = c.open("p", O_RDWR | O_NONBLOCK);
    c.fallocate(fifo, 0, 0, 10);
    c.fstat(fd);
    c.content("f");
}

// More memory than any machine has: fails at once and does not change the file.
void allocating_too_much(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    const int fd = c.open("f", O_RDWR);
    c.fallocate(fd, 0, 0, off_t{1} << 50);
    c.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, off_t{1} << 50);
    c.fstat(fd);
    c.content("f");
}

void punching(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(20'000, 'x'));
    const int fd = c.open("f", O_RDWR);
    c.fallocate(fd, kPunch, 100, 50);  // inside a page
    c.content("f");
    c.fallocate(fd, kPunch, 4'000, 5'000);  // across pages
    c.content("f");
    c.fallocate(fd, kPunch, 18'000, 10'000);  // over the end
    c.fallocate(fd, kPunch, 30'000, 10'000);  // beyond it
    c.fstat(fd);
    c.content("f");
    c.pwrite(fd, "again", 4'500);
    c.content("f");
    c.fallocate(fd, kPunch, 0, kMiB);
    c.content("f");
    c.fallocate(fd, kPunch, 0, 0);
}

void holes_are_zeros(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.pwrite(fd, "end", 3 * kMiB);
    c.pread(fd, 1000, kMiB);
    c.pread(fd, 1000, 3 * kMiB - 10);
    c.pwrite(fd, "middle", kMiB + 5);
    c.pread(fd, 100, kMiB);
    c.ftruncate(fd, kMiB + 8);
    c.ftruncate(fd, 2 * kMiB);
    c.pread(fd, 100, kMiB);
}

// Answers that every file system must give, whether it has holes or reports the whole file as data.
void seeking_ends(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(10'000, 'x'));
    const int fd = c.open("f", O_RDWR);
    c.seek(fd, 0, SEEK_DATA);
    c.seek(fd, 9'999, SEEK_DATA);
    c.seek(fd, 5'000, SEEK_DATA);
    c.seek(fd, 0, SEEK_HOLE);
    c.seek(fd, 9'999, SEEK_HOLE);
    for (const int whence : {SEEK_DATA, SEEK_HOLE}) {
        c.seek(fd, 10'000, whence);
        c.seek(fd, 10'001, whence);
        c.seek(fd, -1, whence);
    }
    c.ftruncate(fd, 0);
    c.seek(fd, 0, SEEK_DATA);
    c.seek(fd, 0, SEEK_HOLE);
}

// tmpfs reports holes in units of pages.
void seeking_holes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.ftruncate(fd, 10 * kMiB);
    c.seek(fd, 0, SEEK_DATA);
    c.seek(fd, 0, SEEK_HOLE);
    c.pwrite(fd, "x", 4 * kMiB + 5);
    c.seek(fd, 0, SEEK_DATA);
    c.seek(fd, 4 * kMiB, SEEK_HOLE);
    c.seek(fd, 4 * kMiB + 3, SEEK_DATA);
    c.seek(fd, 5 * kMiB, SEEK_DATA);
    c.fallocate(fd, 0, 6 * kMiB, kMiB);
    c.seek(fd, 5 * kMiB, SEEK_DATA);
    c.pwrite(fd, std::string(100'000, 'y'), 8 * kMiB);
    c.fallocate(fd, kPunch, 8 * kMiB + 8192, 8192);
    c.seek(fd, 8 * kMiB, SEEK_HOLE);
    c.seek(fd, 8 * kMiB + 8192, SEEK_DATA);
}

constexpr Scenario kScenarios[] = {
    {"space_allocating", allocating, false},
    {"space_allocating_refused", allocating_refused, false},
    {"space_allocating_too_much", allocating_too_much, false},
    {"space_punching", punching, false},
    {"space_holes_are_zeros", holes_are_zeros, false},
    {"space_seeking_ends", seeking_ends, false},
    {"space_seeking_holes", seeking_holes, false},
};

}  // namespace

std::span<const Scenario> space_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
