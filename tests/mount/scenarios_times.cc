// File times: their changes by each call, and setting them.
#include <climits>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

constexpr timespec kNow{0, UTIME_NOW};
constexpr timespec kOmit{0, UTIME_OMIT};

int set_times(Calls& c, const std::string& what, const std::string& name, timespec atime, timespec mtime,
              int flags = 0) {
    const timespec times[2] = {atime, mtime};
    return c.log().result(what, ::utimensat(AT_FDCWD, c.at(name).c_str(), times, flags));
}

bool operator==(const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

void record_equal(Calls& c, const std::string& name, timespec atime, timespec mtime) {
    struct stat st{};
    ::lstat(c.at(name).c_str(), &st);
    c.log().line(fmt::format("  {}: atime {}, mtime {}", name, st.st_atim == atime ? "as asked" : "different",
                             st.st_mtim == mtime ? "as asked" : "different"));
}

void of_names(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    c.mkdir("e", 0755);
    c.moved("create", {"d", "d/f"}, [&] { c.make("d/f"); });
    c.moved("open of what exists", {"d", "d/f"}, [&] { c.close(c.open("d/f", O_CREAT | O_RDWR, 0644)); });
    c.moved("failed exclusive create", {"d", "d/f"}, [&] { c.open("d/f", O_CREAT | O_EXCL | O_RDWR, 0644); });
    c.moved("mkdir", {"d", "d/sub"}, [&] { c.mkdir("d/sub", 0755); });
    c.moved("symlink", {"d", "d/s"}, [&] { c.symlink("x", "d/s"); });
    c.moved("mkfifo", {"d", "d/p"}, [&] { c.mknod("d/p", S_IFIFO | 0644); });
    c.moved("link", {"d", "d/f", "e"}, [&] { c.link("d/f", "e/hard"); });
    c.moved("failed link", {"d", "d/f", "e"}, [&] { c.link("d/f", "e/hard"); });
    c.moved("rename", {"d", "d/f", "d/g"}, [&] { c.rename("d/f", "d/g"); });
    c.moved("look at the renamed", {"d", "d/g", "e/hard"}, [&] { c.stat("d/g"); });
    c.moved("rename seen by its other name", {"d", "e", "e/hard"}, [&] { c.rename("d/g", "e/g"); });
    c.make("d/a");
    c.make("d/b");
    c.link("d/b", "d/b2");
    c.moved("rename over a file", {"d", "d/b2"}, [&] { c.rename("d/a", "d/b"); });
    c.moved("rename of a directory", {"d", "e", "d/sub"}, [&] { c.rename("d/sub", "e/sub"); });
    c.moved("failed rename", {"d", "e", "d/b"}, [&] { c.rename("d/b", "e/sub"); });
    c.moved("unlink of one of two", {"e", "e/g", "e/hard"}, [&] { c.unlink("e/g"); });
    c.moved("unlink of the last", {"e", "e/hard"}, [&] { c.unlink("e/hard"); });
    c.moved("rmdir", {"e", "e/sub"}, [&] { c.rmdir("e/sub"); });
    c.moved("failed rmdir", {".", "d"}, [&] { c.rmdir("d"); });
    c.moved("O_TMPFILE", {"e"}, [&] { c.close(c.open("e", O_TMPFILE | O_RDWR, 0600)); });
}

void of_writes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    const int fd = c.open("f", O_RDWR);
    c.moved("write", {"f", "."}, [&] { c.write(fd, "x"); });
    c.moved("write of the same", {"f", "."}, [&] { c.pwrite(fd, "x", 0); });
    c.moved("write of nothing", {"f"}, [&] { c.write(fd, ""); });
    c.moved("write past the end", {"f"}, [&] { c.pwrite(fd, "x", 10000); });
    c.moved("ftruncate to shrink", {"f", "."}, [&] { c.ftruncate(fd, 10); });
    c.moved("ftruncate to grow", {"f"}, [&] { c.ftruncate(fd, 100); });
    c.moved("ftruncate to the same size", {"f"}, [&] { c.ftruncate(fd, 100); });
    c.moved("truncate", {"f"}, [&] { c.truncate("f", 50); });
    c.moved("truncate to the same size", {"f"}, [&] { c.truncate("f", 50); });
    c.moved("open with O_TRUNC", {"f"}, [&] { c.close(c.open("f", O_WRONLY | O_TRUNC)); });
    c.moved("open with O_TRUNC of an empty file", {"f"}, [&] { c.close(c.open("f", O_WRONLY | O_TRUNC)); });
    c.moved("failed truncate", {"f"}, [&] { c.ftruncate(fd, -1); });
    c.moved("fsync", {"f"}, [&] { recorder.result("fsync", ::fsync(fd)); });
    c.moved("lseek", {"f"}, [&] { c.seek(fd, 0, SEEK_SET); });
    c.make("g", "source bytes");
    const int source = c.open("g", O_RDONLY);
    c.moved("copy_file_range", {"f"},
            [&] { recorder.result("copy_file_range", ::copy_file_range(source, nullptr, fd, nullptr, 6, 0)); });
    c.moved("close", {"f"}, [&] { c.close(fd); });
}

void of_fallocate(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(20000, 'x'));
    const int fd = c.open("f", O_RDWR);
    c.moved("fallocate to grow", {"f"}, [&] { c.fallocate(fd, 0, 0, 40000); });
    c.moved("fallocate inside", {"f"}, [&] { c.fallocate(fd, 0, 0, 100); });
    c.moved("fallocate and keep the size", {"f"}, [&] { c.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 90000); });
    c.moved("punching", {"f"}, [&] { c.fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096); });
}

void of_attributes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.moved("chmod", {"f", "."}, [&] { c.chmod("f", 0600); });
    c.moved("chmod to the same", {"f"}, [&] { c.chmod("f", 0600); });
    c.moved("chown to the same", {"f"}, [&] { c.chown("f", ::getuid(), ::getgid()); });
    c.moved("chown of nothing", {"f"}, [&] { c.chown("f", static_cast<uid_t>(-1), static_cast<gid_t>(-1)); });
    c.moved("setxattr", {"f", "."}, [&] { c.set_attribute("f", "user.test.a", "value"); });
    c.moved("setxattr of the same", {"f"}, [&] { c.set_attribute("f", "user.test.a", "value"); });
    c.moved("getxattr", {"f"}, [&] { c.attribute("f", "user.test.a"); });
    c.moved("removexattr", {"f"}, [&] { c.remove_attribute("f", "user.test.a"); });
    c.moved("failed removexattr", {"f"}, [&] { c.remove_attribute("f", "user.test.a"); });
    c.moved("stat and access", {"f", "."}, [&] { c.access("f", R_OK); });
    c.mkdir("d", 0755);
    c.moved("setxattr of a directory", {"d"}, [&] { c.set_attribute("d", "user.test.a", "value"); });
    c.moved("chmod of a directory", {"d", "."}, [&] { c.chmod("d", 0700); });
}

// Under relatime the access time changes at the first read after a modification, and then not for a day.
void of_reads(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "some bytes to read");
    const int fd = c.open("f", O_RDWR);
    c.moved("first read", {"f", "."}, [&] { c.pread(fd, 4, 0); });
    c.moved("second read", {"f", "."}, [&] { c.pread(fd, 4, 4); });
    c.moved("write", {"f"}, [&] { c.pwrite(fd, "X", 0); });
    c.moved("read after write", {"f"}, [&] { c.pread(fd, 4, 0); });
    c.pwrite(fd, "Z", 0);
    const int quiet = c.open("f", O_RDONLY | O_NOATIME);
    c.moved("read with O_NOATIME", {"f"}, [&] { c.pread(quiet, 4, 0); });
}

// A read from the page cache counts too.
void of_cached_reads(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "some bytes to read");
    const int fd = c.open("f", O_RDWR);
    c.pread(fd, 4, 0);
    c.moved("chmod", {"f"}, [&] { c.fchmod(fd, 0600); });
    c.moved("read after chmod", {"f"}, [&] { c.pread(fd, 4, 0); });
}

// A read of 0 bytes counts too. (The kernel does not send it to a FUSE server.)
void of_reads_of_nothing(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "some bytes to read");
    const int fd = c.open("f", O_RDWR);
    c.moved("read of nothing", {"f"}, [&] { c.pread(fd, 0, 0); });
    c.pwrite(fd, "Y", 0);
    c.moved("read at the end", {"f"}, [&] { c.pread(fd, 4, 1000); });
}

void of_reading_names(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    c.make("d/f");
    c.symlink("d/f", "s");
    c.moved("listing", {"d"}, [&] { c.list("d"); });
    c.moved("listing again", {"d"}, [&] { c.list("d"); });
    c.make("d/g");
    c.moved("listing after a change", {"d"}, [&] { c.list("d"); });
    c.moved("lookup", {"d"}, [&] { c.stat("d/f"); });
    c.moved("readlink", {"s"}, [&] { c.readlink("s"); });
    c.moved("readlink again", {"s"}, [&] { c.readlink("s"); });
}

void setting(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    c.symlink("f", "s");
    const timespec early{1'000'000, 123'456'789}, late{2'000'000, 987'654'321};
    for (const auto* name : {"f", "d"}) {
        c.moved("explicit times", {name, "."}, [&] { set_times(c, "utimensat(explicit)", name, early, late); });
        record_equal(c, name, early, late);
        c.moved("only mtime", {name}, [&] { set_times(c, "utimensat(omit, now)", name, kOmit, kNow); });
        c.moved("only atime", {name}, [&] { set_times(c, "utimensat(now, omit)", name, kNow, kOmit); });
        c.moved("neither", {name}, [&] { set_times(c, "utimensat(omit, omit)", name, kOmit, kOmit); });
        c.moved("both now", {name}, [&] { set_times(c, "utimensat(now, now)", name, kNow, kNow); });
        struct stat st{};
        ::lstat(c.at(name).c_str(), &st);
        recorder.line(fmt::format("  atime {} mtime", st.st_atim == st.st_mtim ? "is" : "is not"));
        set_times(c, "utimensat(omit, explicit)", name, kOmit, early);
        set_times(c, "utimensat(explicit, omit)", name, late, kOmit);
        record_equal(c, name, late, early);
    }
    c.moved("null", {"f"},
            [&] { recorder.result("utimensat(null)", ::utimensat(AT_FDCWD, c.at("f").c_str(), nullptr, 0)); });
    c.moved("of the symlink itself", {"f", "s"},
            [&] { set_times(c, "utimensat(nofollow)", "s", early, late, AT_SYMLINK_NOFOLLOW); });
    record_equal(c, "s", early, late);
    c.moved("through the symlink", {"f", "s"}, [&] { set_times(c, "utimensat(follow)", "s", early, late); });
    const int fd = c.open("f", O_RDONLY);
    const timespec times[2] = {late, early};
    recorder.result("futimens", ::futimens(fd, times));
    record_equal(c, "f", late, early);
    // A close and a rename do not change them.
    c.close(fd);
    c.rename("f", "g");
    record_equal(c, "g", late, early);
}

void setting_strange_ones(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    const timespec strange[] = {{0, 0},
                                {0, 1},
                                {-1, 0},
                                {-1'000'000'000, 999'999'999},
                                {0x7fffffff, 0},
                                {0x80000000, 1},
                                {0xffffffff, 2},
                                {0x100000000, 3},
                                {0x3ffffffff, 4},
                                {0x400000000, 5},
                                {1'000'000'000'000, 6}};
    for (const auto& time : strange) {
        set_times(c, fmt::format("utimensat({}.{:09})", time.tv_sec, time.tv_nsec), "f", time, time);
        record_equal(c, "f", time, time);
    }
    set_times(c, "nanoseconds too many", "f", {0, 1'000'000'000}, kNow);
    set_times(c, "nanoseconds negative", "f", {0, -1}, kNow);
    set_times(c, "of nothing", "none", kNow, kNow);
    set_times(c, "of nothing, omitting both", "none", kOmit, kOmit);
    set_times(c, "below a file", "f/x", kNow, kNow);
    set_times(c, "bad flag", "f", kNow, kNow, 0x8000);
}

void setting_by_others(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const timespec some{1'000'000, 0};
    const auto all = [&](const std::string& name) {
        set_times(c, name + " explicit", name, some, some);
        set_times(c, name + " now, now", name, kNow, kNow);
        set_times(c, name + " omit, now", name, kOmit, kNow);
        set_times(c, name + " now, omit", name, kNow, kOmit);
        set_times(c, name + " omit, omit", name, kOmit, kOmit);
        set_times(c, name + " explicit, now", name, some, kNow);
        recorder.result(name + " null", ::utimensat(AT_FDCWD, c.at(name).c_str(), nullptr, 0));
    };
    c.make("writable");
    c.chmod("writable", 0666);
    c.make("readable", "", 0644);
    c.make("owned", "", 0400);
    c.chown("owned", kNobody.uid, kNobody.gid);
    c.mkdir("closed", 0700);
    c.make("closed/f", "", 0666);
    c.as(kNobody, [&] {
        for (const auto* name : {"writable", "readable", "owned", "closed/f"}) all(name);
    });
}

constexpr Scenario kScenarios[] = {
    {"times_of_names", of_names, false},
    {"times_of_writes", of_writes, false},
    {"times_of_fallocate", of_fallocate, false},
    {"times_of_attributes", of_attributes, false},
    {"times_of_reads", of_reads, false},
    {"times_of_cached_reads", of_cached_reads, false},
    {"times_of_reads_of_nothing", of_reads_of_nothing, false},
    {"times_of_reading_names", of_reading_names, false},
    {"times_setting", setting, false},
    {"times_setting_strange", setting_strange_ones, false},
    {"times_setting_by_others", setting_by_others, true},
};

}  // namespace

std::span<const Scenario> time_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
