// Rights: mode bits, directories, sticky directories, umask, access().
#include <fcntl.h>
#include <initializer_list>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void modes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    for (const mode_t mode : {0, 0111, 0644, 0777, 01777, 02755, 04755, 06777, 07777}) {
        c.chmod("f", mode);
        c.stat("f");
        c.chmod("d", mode);
        c.stat("d");
    }
    c.chmod("none", 0644);
    c.chmod("f/x", 0644);
    const int fd = c.open("d", O_RDONLY | O_DIRECTORY);
    c.fchmod(fd, 0700);
    c.stat("d");
    c.chmod("f", 0100644);  // type bits are ignored
    c.stat("f");
}

void umasks(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    int number = 0;
    for (const mode_t mask : {0, 022, 027, 077, 0777}) {
        ::umask(mask);
        const auto name = fmt::format("{}{:03o}", number++, mask);
        c.close(c.open(name + "f", O_CREAT | O_WRONLY, 0666));
        c.close(c.open(name + "x", O_CREAT | O_WRONLY, 07777));
        c.mkdir(name + "d", 0777);
        c.mknod(name + "p", S_IFIFO | 0666);
        c.symlink("x", name + "s");
        for (const auto* kind : {"f", "x", "d", "p", "s"}) c.stat(name + kind);
        const int fd = c.open(".", O_TMPFILE | O_RDWR, 0666);
        c.fstat(fd);
    }
}

// Every way into a file of this mode, for its owner, its group and others.
void mode_bits(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const User in_group{12346, 12346, {12345}};
    for (const mode_t mode : {0000, 0400, 0200, 0100, 0040, 0020, 0004, 0002, 0600, 0066, 0606}) {
        c.make("f", "bytes");
        c.chown("f", kSomebody.uid, kSomebody.gid);
        c.chmod("f", mode);
        for (const auto& user : {kSomebody, in_group, kNobody}) {
            c.as(user, [&] {
                c.open("f", O_RDONLY);
                c.open("f", O_WRONLY);
                c.open("f", O_RDWR);
                c.open("f", O_RDONLY | O_TRUNC);
                c.truncate("f", 1);
                for (const int wanted : {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK}) c.access("f", wanted);
            });
        }
        c.unlink("f");
    }
}

void directory_bits(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    for (const mode_t mode : {0777, 0776, 0775, 0773, 0771, 0770}) {
        c.mkdir("d", 0755);
        c.make("d/f", "x", 0666);
        c.mkdir("d/sub", 0777);
        c.symlink("f", "d/s");
        c.make("mine", "", 0666);
        c.chown("mine", kNobody.uid, kNobody.gid);
        c.chmod(".", 0777);
        c.chmod("d", mode);
        c.as(kNobody, [&] {
            c.list("d");
            c.stat("d/f");
            c.stat("d/none");
            c.readlink("d/s");
            c.open("d/f", O_RDWR);
            c.open("d/new", O_CREAT | O_RDWR, 0644);
            c.mkdir("d/newdir", 0755);
            c.symlink("x", "d/newlink");
            c.link("mine", "d/hard");
            c.mknod("d/fifo", S_IFIFO | 0644);
            c.rename("d/f", "d/g");
            c.rename("mine", "d/moved");
            c.rename("d/sub", "outside");
            c.chmod("d/f", 0600);
            c.unlink("d/f");
            c.rmdir("d/sub");
            recorder.result("chdir(d)", ::chdir(c.at("d").c_str()));
        });
        remove_tree(c.at("d"));
        for (const auto* name : {"mine", "outside"}) remove_tree(c.at(name)), ::unlink(c.at(name).c_str());
    }
}

// In a sticky directory only the owner of the file, or of the directory, may remove a name.
void sticky(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.chmod(".", 0755);
    for (const uid_t owner : {uid_t{0}, kSomebody.uid}) {
        c.mkdir("d", 0777);
        c.chmod("d", 01777);
        c.chown("d", owner, 0);
        c.mkdir("open", 0777);
        c.chmod("open", 0777);
        c.as(kNobody, [&] {
            for (const auto* name : {"d/f1", "d/f2", "d/f3", "open/over"}) c.make(name);
            c.mkdir("d/sub", 0777);
            c.mkdir("d/sub2", 0777);
        });
        c.as(kSomebody, [&] {
            c.make("d/mine");
            c.unlink("d/f1");
            c.rename("d/f2", "d/g");
            c.rename("d/f2", "open/taken");
            c.rename("d/mine", "d/f3");
            c.rename("open/over", "d/f3");
            c.rmdir("d/sub");
            c.rename("d/sub2", "open/sub2");
            c.renameat2("d/mine", "d/f1", 2);  // exchange
            c.unlink("d/mine");
        });
        c.as(kNobody, [&] {
            c.rename("d/f1", "d/h");
            c.unlink("d/h");
            c.list("d");
        });
        remove_tree(c.at("d"));
        remove_tree(c.at("open"));
    }
}

// A move to another parent changes "..", so the directory itself must be writable.
void moving_directories(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.chmod(".", 0777);
    c.as(kNobody, [&] {
        c.mkdir("a", 0755);
        c.mkdir("b", 0755);
        c.mkdir("a/readonly", 0555);
        c.rename("a/readonly", "a/renamed");
        c.rename("a/renamed", "b/renamed");
        c.chmod("a/renamed", 0755);
        c.rename("a/renamed", "b/renamed");
    });
    c.mkdir("b/roots", 0755);
    c.as(kNobody, [&] {
        c.rename("b/roots", "b/moved");
        c.rename("b/moved", "a/moved");
        c.rmdir("b/moved");
    });
}

void effective_user(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "", 0600);
    c.make("x", "", 0100);
    c.mkdir("d", 0600);
    c.mkdir("d/below", 0755);
    for (const auto* name : {"f", "x", "d", "d/below", "none"})
        for (const int mode : {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK | X_OK}) c.access(name, mode);
    c.in_child("access asks for the real user", [&] {
        if (::seteuid(kNobody.uid) != 0) return 1;
        c.access("f", R_OK);
        recorder.result("faccessat(AT_EACCESS)", ::faccessat(AT_FDCWD, c.at("f").c_str(), R_OK, AT_EACCESS));
        c.open("f", O_RDONLY);
        return 0;
    });
    c.as(kNobody, [&] {
        c.access("d/below", F_OK);
        c.access("f", F_OK);
        c.access("f", R_OK);
    });
}

// As the current user: an owner without the bits is refused unless it is root.
void own_files(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes", 0600);
    const int fd = c.open("f", O_RDWR);
    c.chmod("f", 0);
    c.open("f", O_RDONLY);
    c.open("f", O_WRONLY);
    c.truncate("f", 2);
    c.write(fd, "still");  // open files stay open
    c.pread(fd, 10, 0);
    c.mkdir("d", 0755);
    c.make("d/f");
    c.chmod("d", 0444);
    c.list("d");
    c.stat("d/f");
    c.chmod("d", 0111);
    c.list("d");
    c.stat("d/f");
    c.unlink("d/f");
    c.chmod("d", 0222);
    c.open("d/new", O_CREAT | O_WRONLY, 0644);
    c.chmod("d", 0555);
    c.open("d/new", O_CREAT | O_WRONLY, 0644);
    c.mkdir("d/sub", 0755);
    c.rename("f", "d/f");
    for (const int mode : {R_OK, W_OK, X_OK}) c.access("d", mode);
}

constexpr Scenario kScenarios[] = {
    {"rights_modes", modes, false},
    {"rights_umask", umasks, false},
    {"rights_own_files", own_files, false},
    {"rights_mode_bits", mode_bits, true},
    {"rights_directory_bits", directory_bits, true},
    {"rights_sticky", sticky, true},
    {"rights_moving_directories", moving_directories, true},
    {"rights_access", effective_user, true},
};

}  // namespace

std::span<const Scenario> rights_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
