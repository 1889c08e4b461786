// Owners and groups: rights to change them, and the set-id bits.
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kSame = static_cast<uid_t>(-1);
const User kMember{12345, 12345, {23456}};

void by_root(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    c.symlink("f", "s");
    c.chown("f", 12345, 23456);
    c.stat("f");
    c.chown("f", 1, kSame);
    c.stat("f");
    c.chown("f", kSame, 2);
    c.stat("f");
    c.chown("s", 77, 77);
    c.stat("s");
    c.stat("f");
    c.lchown("s", 78, 78);
    c.stat("s");
    c.stat("f");
    c.chown("d", 0x7ffffffe, 0x7ffffffe);
    c.stat("d");
    c.chown("none", 1, 1);
    c.chown("f/x", 1, 1);
    const int fd = c.open("f", O_RDONLY);
    c.fchown(fd, 5, 6);
    c.fstat(fd);
}

void by_users(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.chown("f", kMember.uid, kMember.gid);
    c.as(kMember, [&] {
        c.chown("f", kSame, 23456);  // one of its groups
        c.stat("f");
        c.chown("f", kMember.uid, 12345);
        c.chown("f", kSame, 34567);
        c.chown("f", 0, kSame);
        c.chown("f", kNobody.uid, kNobody.gid);
        c.chown("f", kSame, kSame);
        c.chmod("f", 0640);
        c.stat("f");
    });
    c.as(kNobody, [&] {
        c.chown("f", kNobody.uid, kSame);
        c.chown("f", kSame, kNobody.gid);
        c.chown("f", kMember.uid, kMember.gid);
        c.chown("f", kSame, kSame);
        c.chmod("f", 0777);
        c.chmod("f", 0640);
    });
    c.stat("f");
}

// A change of the owner clears the set-id bits, even by root; those of directories stay.
void set_id_on_chown(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    for (const mode_t mode : {06755, 06655, 02745, 02765, 04644}) {
        c.chmod("f", mode);
        c.chown("f", 1, 1);
        c.stat("f");
        c.chmod("f", mode);
        c.chown("f", kSame, kSame);
        c.stat("f");
        c.chmod("d", mode);
        c.chown("d", 1, 1);
        c.stat("d");
    }
    c.chown("f", kMember.uid, kMember.gid);
    c.chmod("f", 06755);
    c.as(kMember, [&] {
        c.chown("f", kMember.uid, 23456);
        c.stat("f");
        c.chmod("f", 06755);
        c.stat("f");
        c.chown("f", kSame, kSame);
        c.stat("f");
    });
}

// A user without any relation to the file requests no change at all.
void set_id_on_empty_chown(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.chmod("f", 06777);
    c.as(kNobody, [&] { c.chown("f", kSame, kSame); });
    c.stat("f");
}

// A write by a user other than root clears the set-id bits too.
void set_id_on_write(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const auto renew = [&](mode_t mode) {
        c.make("f", "bytes");
        c.chmod("f", mode);
    };
    for (const mode_t mode : {06777, 02767, 04766, 02777}) {
        renew(mode);
        c.as(kNobody, [&] {
            const int fd = c.open("f", O_RDWR);
            c.stat("f");
            c.write(fd, "x");
            c.fstat(fd);
        });
        c.stat("f");
        renew(mode);
        c.as(kNobody, [&] { c.truncate("f", 2); });
        c.stat("f");
        renew(mode);
        c.as(kNobody, [&] { c.ftruncate(c.open("f", O_RDWR), 2); });
        c.stat("f");
        renew(mode);
        c.as(kNobody, [&] { c.open("f", O_WRONLY | O_TRUNC); });
        c.stat("f");
        renew(mode);
        c.as(kNobody, [&] { c.write(c.open("f", O_WRONLY), ""); });
        c.stat("f");
        // A write by root keeps them.
        renew(mode);
        const int fd = c.open("f", O_WRONLY);
        c.write(fd, "root");
        c.close(fd);
        c.stat("f");
        c.unlink("f");
    }
    c.mkdir("d", 0777);
    c.chmod("d", 02777);
    c.as(kNobody, [&] { c.make("d/f"); });
    c.stat("d");
}

void set_id_on_fallocate(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    for (const int mode : {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE}) {
        c.make("f", "some bytes");
        c.chmod("f", 06777);
        c.as(kNobody, [&] { c.fallocate(c.open("f", O_RDWR), mode, 0, 100); });
        c.stat("f");
        c.unlink("f");
    }
}

// The owner of a file who is not in its group cannot set the set-group-id bit.
void set_group_id_by_chmod(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.chown("f", kNobody.uid, 23456);
    c.mkdir("d", 0755);
    c.chown("d", kNobody.uid, 23456);
    c.as(kNobody, [&] {
        c.chmod("f", 06755);
        c.stat("f");
        c.chmod("d", 02755);
        c.stat("d");
    });
    c.chown("f", kMember.uid, 23456);
    c.as(kMember, [&] {
        c.chmod("f", 06755);
        c.stat("f");
    });
}

void sticky_by_chmod(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.chown("f", kNobody.uid, kNobody.gid);
    c.as(kNobody, [&] {
        c.chmod("f", 01644);
        c.stat("f");
    });
}

// New entries of a set-group-id directory get its group, and new directories also the bit.
void inherited_groups(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0777);
    c.chown("d", 0, 23456);
    c.chmod("d", 02777);
    const auto fill = [&](const std::string& who) {
        ::umask(0);
        c.close(c.open("d/f" + who, O_CREAT | O_WRONLY, 0666));
        c.close(c.open("d/x" + who, O_CREAT | O_WRONLY, 02777));
        c.close(c.open("d/y" + who, O_CREAT | O_WRONLY, 02767));
        c.mkdir("d/d" + who, 0755);
        c.mknod("d/p" + who, S_IFIFO | 02777);
        c.symlink("x", "d/s" + who);
        c.fstat(c.open("d", O_TMPFILE | O_RDWR, 02777));
        for (const auto* kind : {"f", "x", "y", "d", "p", "s"}) c.stat(std::string("d/") + kind + who);
    };
    fill("_root");
    c.as(kNobody, [&] { fill("_nobody"); });
    c.as(kMember, [&] { fill("_member"); });
    c.mkdir("plain", 0777);
    c.chown("plain", 0, 23456);
    c.chmod("plain", 0777);
    c.as(kNobody, [&] {
        c.close(c.open("plain/f", O_CREAT | O_WRONLY, 0666));
        c.mkdir("plain/d", 0777);
    });
    c.stat("plain/f");
    c.stat("plain/d");
}

// The creator is the owner of a new file.
void new_files(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.chmod(".", 0777);
    c.as(kMember, [&] {
        c.make("f");
        c.mkdir("d", 0755);
        c.symlink("f", "s");
        c.mknod("p", S_IFIFO | 0644);
        c.link("f", "g");
    });
    for (const auto* name : {"f", "d", "s", "p", "g"}) c.stat(name);
    c.make("roots", "", 0600);
    c.as(kNobody, [&] {
        c.link("roots", "stolen");
        c.link("f", "stolen");
        c.rename("roots", "renamed");
        c.unlink("renamed");
    });
    c.list(".");
}

constexpr Scenario kScenarios[] = {
    {"owners_by_root", by_root, true},
    {"owners_by_users", by_users, true},
    {"owners_new_files", new_files, true},
    {"owners_set_id_on_chown", set_id_on_chown, true},
    {"owners_set_id_on_empty_chown", set_id_on_empty_chown, true},
    {"owners_set_id_on_write", set_id_on_write, true},
    {"owners_set_id_on_fallocate", set_id_on_fallocate, true},
    {"owners_set_group_id_by_chmod", set_group_id_by_chmod, true},
    {"owners_sticky_by_chmod", sticky_by_chmod, true},
    {"owners_inherited_groups", inherited_groups, true},
};

}  // namespace

std::span<const Scenario> owner_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
