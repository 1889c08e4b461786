// Opening and creating: flags, refusals, and descriptors that outlive their names.
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

std::string proc_path(int fd) {
    return fmt::format("/proc/self/fd/{}", fd);
}

void create(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.open("f", O_RDONLY);
    c.close(c.open("f", O_CREAT | O_RDWR, 0640));
    c.stat("f");
    c.close(c.open("f", O_CREAT | O_RDWR, 0777));  // an existing file keeps its mode
    c.stat("f");
    c.open("f", O_CREAT | O_EXCL | O_RDWR, 0644);
    c.close(c.open("strange", O_CREAT | O_RDWR, 07777));
    c.stat("strange");
    // The mode is for later opens; this one may write.
    const int fd = c.open("readonly", O_CREAT | O_EXCL | O_RDWR, 0400);
    c.write(fd, "written all the same");
    c.fstat(fd);
    c.close(fd);
    c.close(c.creat("f", 0600));
    c.close(c.creat("made", 0600));
    c.stat("made");
    c.list(".");
}

void create_refused(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    c.open("no/f", O_CREAT | O_RDWR, 0644);
    c.open("f/below", O_CREAT | O_RDWR, 0644);
    c.open("f/", O_RDONLY);
    c.open("new/", O_CREAT | O_RDWR, 0644);
    c.open("d/", O_CREAT | O_RDWR, 0644);
    c.open("d", O_CREAT | O_RDONLY, 0644);
    c.open("d", O_CREAT | O_EXCL | O_RDONLY, 0644);
    c.open("d", O_WRONLY);
    c.open("d", O_RDWR);
    c.open("d", O_RDONLY | O_TRUNC);
    c.open("f", O_RDONLY | O_DIRECTORY);
    c.open("none", O_RDONLY | O_DIRECTORY);
    c.open("none", O_RDONLY | O_DIRECTORY | O_CREAT, 0644);
    c.open("d", O_RDONLY | O_DIRECTORY | O_CREAT, 0755);
    recorder.success("open of the empty name", ::open("", O_RDONLY));
    c.list(".");
}

void truncating(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "some bytes");
    const int before = c.open("f", O_RDONLY);
    c.close(c.open("f", O_WRONLY | O_TRUNC));
    c.stat("f");
    c.read(before, 100);
    c.make("f", "other bytes");
    c.read(before, 100);
    c.close(c.open("f", O_RDONLY | O_TRUNC));  // Linux truncates although the open is read-only
    c.stat("f");
    c.open("f", O_CREAT | O_EXCL | O_TRUNC | O_WRONLY, 0644);
    c.close(before);
}

void appending(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "start");
    const int a = c.open("f", O_WRONLY | O_APPEND);
    const int b = c.open("f", O_RDWR | O_APPEND);
    c.write(a, "-a1");
    c.write(b, "-b1");
    c.write(a, "-a2");
    c.seek(b, 0, SEEK_CUR);
    c.seek(b, 2, SEEK_SET);
    c.read(b, 3);
    c.write(b, "-b2");
    c.seek(b, 0, SEEK_CUR);
    c.pwrite(b, "-p", 0);  // Linux appends and ignores the offset
    c.content("f");
    c.ftruncate(a, 3);
    c.write(b, "-after");
    c.content("f");
    recorder.result("fcntl(F_SETFL, O_APPEND off)", ::fcntl(b, F_SETFL, 0));
    c.pwrite(b, "S", 0);
    c.content("f");
    c.close(a);
    c.close(b);
}

void symlinks(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    c.mkdir("d", 0755);
    c.symlink("f", "to_f");
    c.symlink("d", "to_d");
    c.symlink("nowhere", "dangling");
    c.open("to_f", O_RDONLY | O_NOFOLLOW);
    c.open("to_d", O_RDONLY | O_NOFOLLOW | O_DIRECTORY);
    c.open("to_d", O_RDONLY | O_NOFOLLOW);
    c.open("dangling", O_RDONLY);
    c.open("dangling", O_RDONLY | O_NOFOLLOW);
    c.open("dangling", O_CREAT | O_EXCL | O_WRONLY, 0644);
    c.open("to_f", O_CREAT | O_EXCL | O_WRONLY, 0644);
    c.close(c.open("f", O_RDONLY | O_NOFOLLOW));
    c.close(c.open("to_d", O_RDONLY | O_DIRECTORY));
    c.close(c.open("dangling", O_CREAT | O_WRONLY, 0644));  // makes its target
    c.list(".");
}

void path_descriptors(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    c.mkdir("d", 0755);
    c.make("d/below", "deep");
    c.symlink("f", "to_f");
    const int fd = c.open("f", O_PATH);
    c.fstat(fd);
    c.read(fd, 10);
    c.write(fd, "x");
    c.fchmod(fd, 0600);
    c.ftruncate(fd, 0);
    const int again = c.adopt(::open(proc_path(fd).c_str(), O_RDWR), "reopened O_PATH");
    c.read(again, 10);
    const int folder = c.open("d", O_PATH | O_DIRECTORY);
    const int below = c.openat(folder, "below", O_RDONLY);
    c.read(below, 10);
    const int link = c.open("to_f", O_PATH | O_NOFOLLOW);
    c.fstat(link);
    char target[16];
    recorder.result("readlinkat(O_PATH, empty)", ::readlinkat(link, "", target, sizeof target));
    c.unlink("f");
    c.fstat(fd);
}

void temporary_files(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    c.open("d", O_TMPFILE | O_RDONLY, 0600);
    c.open("none", O_TMPFILE | O_RDWR, 0600);
    const int fd = c.open("d", O_TMPFILE | O_RDWR, 0640);
    c.fstat(fd);
    c.write(fd, "hidden");
    c.list("d");
    c.stat("d");
    recorder.result("linkat(O_TMPFILE)",
                    ::linkat(AT_FDCWD, proc_path(fd).c_str(), AT_FDCWD, c.at("d/seen").c_str(), AT_SYMLINK_FOLLOW));
    c.fstat(fd);
    c.stat("d/seen");
    c.content("d/seen");
    recorder.result("linkat over a name",
                    ::linkat(AT_FDCWD, proc_path(fd).c_str(), AT_FDCWD, c.at("d/seen").c_str(), AT_SYMLINK_FOLLOW));
    const int private_fd = c.open("d", O_TMPFILE | O_EXCL | O_WRONLY, 0600);
    recorder.result("linkat(O_TMPFILE|O_EXCL)", ::linkat(AT_FDCWD, proc_path(private_fd).c_str(), AT_FDCWD,
                                                         c.at("d/never").c_str(), AT_SYMLINK_FOLLOW));
    c.close(fd);
    c.list("d");
}

void unlinked_but_open(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.write(fd, "first");
    c.unlink("f");
    c.stat("f");
    c.fstat(fd);
    c.write(fd, " second");
    c.pread(fd, 100, 0);
    c.ftruncate(fd, 4);
    c.fchmod(fd, 0600);
    c.fstat(fd);
    const int again = c.adopt(::open(proc_path(fd).c_str(), O_RDONLY), "reopened");
    c.read(again, 100);
    recorder.result("linkat of what has no name",
                    ::linkat(AT_FDCWD, proc_path(fd).c_str(), AT_FDCWD, c.at("back").c_str(), AT_SYMLINK_FOLLOW));
    c.make("f", "another file");  // a new file of that name does not have the old bytes
    c.close(fd);
    c.pread(again, 100, 0);
    c.fstat(again);
    c.content("f");
    c.list(".");
}

void reopening(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    c.write(fd, "0123456789");
    const int again = c.adopt(::open(proc_path(fd).c_str(), O_RDWR), "reopened");
    c.read(again, 4);  // its own offset
    c.seek(fd, 0, SEEK_CUR);
    c.rename("f", "g");
    const int third = c.adopt(::open(proc_path(fd).c_str(), O_RDWR | O_TRUNC), "reopened after rename");
    c.fstat(third);
    c.stat("g");
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    c.openat(folder, "g", O_RDONLY);
    recorder.success("open through the descriptor of the directory",
                     ::open((proc_path(folder) + "/g").c_str(), O_RDONLY));
}

void duplicates(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const int fd = c.open("f", O_CREAT | O_RDWR, 0644);
    const int copy = c.dup(fd);
    c.write(fd, "abc");
    c.write(copy, "def");  // one offset for both
    c.seek(fd, 1, SEEK_SET);
    c.read(copy, 2);
    c.close(fd);
    c.write(copy, "X");
    c.content("f");
    c.in_child("a child shares the offset", [&] { return c.seek(copy, 0, SEEK_SET) == 0 ? 0 : 1; });
    c.read(copy, 2);
}

void wrong_direction(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    const int in = c.open("f", O_RDONLY);
    const int out = c.open("f", O_WRONLY);
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    c.write(in, "x");
    c.ftruncate(in, 0);
    c.fallocate(in, 0, 0, 10);
    c.read(out, 5);
    c.read(folder, 5);
    c.write(folder, "x");
    c.ftruncate(folder, 0);
    c.fallocate(folder, 0, 0, 10);
    c.truncate(".", 0);
    recorder.result("fsync of a file for reading", ::fsync(in));
    recorder.result("fdatasync", ::fdatasync(out));
    recorder.result("fsync of a directory", ::fsync(folder));
    recorder.result("syncfs", ::syncfs(out));
    c.content("f");
}

// A program that is open for writing cannot be run.
void execute(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const auto run = [&](const std::string& what) {
        c.in_child(what, [&] {
            const auto path = c.at("program");
            char* argv[] = {const_cast<char*>("program"), nullptr};
            ::execv(path.c_str(), argv);
            recorder.result("execv", -1);
            return 1;
        });
    };
    c.make("program", "#!/bin/sh\nexit 7\n", 0644);
    run("without the x bit");
    c.chmod("program", 0755);
    const int fd = c.open("program", O_WRONLY);
    run("open for writing");
    c.close(fd);
    run("as it should be");
}

constexpr Scenario kScenarios[] = {
    {"open_create", create, false},
    {"open_create_refused", create_refused, false},
    {"open_truncating", truncating, false},
    {"open_appending", appending, false},
    {"open_symlinks", symlinks, false},
    {"open_path_descriptors", path_descriptors, false},
    {"open_temporary_files", temporary_files, false},
    {"open_unlinked", unlinked_but_open, false},
    {"open_reopening", reopening, false},
    {"open_duplicates", duplicates, false},
    {"open_wrong_direction", wrong_direction, false},
    {"open_execute", execute, false},
};

}  // namespace

std::span<const Scenario> open_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
