// Renaming: over existing names, into itself, over open files, and the flags of renameat2.
#include <fcntl.h>
#include <linux/fs.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void files(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a", "of a");
    c.mkdir("d", 0755);
    c.rename("a", "b");
    c.stat("a");
    c.content("b");
    c.rename("b", "d/c");
    c.list(".");
    c.list("d");
    c.make("b", "another");
    c.rename("d/c", "b");
    c.content("b");
    c.rename("b", "b");
    c.content("b");
    c.rename("none", "x");
    c.rename("b", "no/x");
    c.rename("b", "b/x");
    c.rename("b/x", "x");
    c.rename("b", "x/");
    c.rename("b/", "x");
    c.rename("b", "d");
    c.rename("b", ".");
    c.list(".");
}

void directories(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("a", 0755);
    c.mkdir("a/sub", 0755);
    c.make("a/sub/f", "deep");
    c.mkdir("empty", 0700);
    c.mkdir("full", 0755);
    c.make("full/f");
    c.make("file");
    c.rename("a", "full");
    c.rename("a", "file");
    c.rename("file", "a");
    c.rename("file", "empty");
    c.rename("a", "a/sub/inside");
    c.rename("a", "a/sub");
    c.rename("a", "a");
    c.rename("a/sub", "a");
    c.rename("a", "a/.");
    c.rename("a/.", "x");
    c.rename("a", "a/..");
    c.rename("a/sub/..", "x");
    c.rename("a", "empty");
    c.stat("empty");
    c.content("empty/sub/f");
    c.rename("empty", "new/");
    c.stat(".");
    c.rename("new/sub", "full/moved");
    c.stat("new");
    c.stat("full");
    c.content("full/moved/f");
    c.content("full/moved/../f");
    c.list(".");
}

void link_counts(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("a", 0755);
    c.mkdir("b", 0755);
    c.mkdir("a/x", 0755);
    c.mkdir("b/y", 0755);
    const auto all = [&] {
        for (const auto* name : {".", "a", "b"}) c.stat(name);
    };
    all();
    c.rename("a/x", "b/x");
    all();
    c.rename("b/x", "b/y");  // over an empty directory
    all();
    c.rename("b/y", "a/y");
    all();
    c.make("f");
    c.link("f", "g");
    c.make("h");
    const int fd = c.open("h", O_RDONLY);
    c.rename("f", "h");
    c.stat("g");
    c.fstat(fd);
}

void same_inode(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a");
    c.link("a", "b");
    c.moved("rename between two names of a file", {"a", "b", "."}, [&] { c.rename("a", "b"); });
    c.stat("a");  // the rename had no effect: both names still exist
    c.stat("b");
    c.renameat2("a", "b", RENAME_NOREPLACE);
    c.renameat2("a", "b", RENAME_EXCHANGE);
    c.list(".");
}

void over_an_open_file(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("old", "old bytes");
    c.make("new", "new bytes");
    const int old_fd = c.open("old", O_RDWR);
    const int new_fd = c.open("new", O_RDWR);
    c.rename("new", "old");
    c.fstat(old_fd);
    c.pread(old_fd, 100, 0);
    c.write(old_fd, "OLD");
    c.pread(old_fd, 100, 0);
    c.write(new_fd, "NEW");
    c.content("old");
    c.close(old_fd);
    c.fstat(new_fd);
    // An open directory over another open directory.
    c.mkdir("d", 0755);
    c.make("d/f");
    c.mkdir("e", 0755);
    const int d = c.open("d", O_RDONLY | O_DIRECTORY);
    const int e = c.open("e", O_RDONLY | O_DIRECTORY);
    c.rename("d", "e");
    c.fstat(d);
    c.fstat(e);
    c.openat(d, "f", O_RDONLY);
    c.openat(e, "f", O_RDONLY);
    c.openat(e, "f", O_CREAT | O_RDWR, 0644);
}

void symlinks(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    c.symlink("f", "s");
    c.symlink("d", "sd");
    c.rename("s", "s2");
    c.readlink("s2");
    c.rename("s2", "f");  // the symlink now points to itself
    c.stat("f");
    c.open("f", O_RDONLY);
    c.rename("d", "sd");
    c.rename("sd", "d");
    c.rename("sd/", "e");
    c.make("g");
    c.rename("g", "sd");
    c.stat("sd");
    c.list(".");
}

void no_replace(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a", "a");
    c.make("b", "b");
    c.mkdir("d", 0755);
    c.symlink("nowhere", "dangling");
    c.renameat2("a", "b", RENAME_NOREPLACE);
    c.renameat2("a", "a", RENAME_NOREPLACE);
    c.renameat2("a", "d", RENAME_NOREPLACE);
    c.renameat2("d", "a", RENAME_NOREPLACE);
    c.renameat2("a", "dangling", RENAME_NOREPLACE);
    c.renameat2("none", "x", RENAME_NOREPLACE);
    c.renameat2("none", "a", RENAME_NOREPLACE);
    c.renameat2("a", "x", RENAME_NOREPLACE);
    c.renameat2("d", "y", RENAME_NOREPLACE);
    c.list(".");
}

void exchange(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a", "of a");
    c.make("b", "of b");
    c.mkdir("d", 0755);
    c.mkdir("d/sub", 0755);
    c.mkdir("e", 0755);
    c.symlink("a", "s");
    c.renameat2("a", "b", RENAME_EXCHANGE);
    c.content("a");
    c.content("b");
    c.renameat2("a", "d/sub", RENAME_EXCHANGE);  // a file with a directory, across directories
    c.stat("a");
    c.stat("d/sub");
    c.stat("d");
    c.stat(".");
    c.renameat2("d", "e", RENAME_EXCHANGE);
    c.list("e");
    c.renameat2("b", "s", RENAME_EXCHANGE);
    c.readlink("b");
    c.renameat2("a", "none", RENAME_EXCHANGE);
    c.renameat2("none", "a", RENAME_EXCHANGE);
    c.renameat2("e", "e/sub", RENAME_EXCHANGE);
    c.renameat2("e/sub", "e", RENAME_EXCHANGE);
    c.mkdir("e/inner", 0755);
    c.renameat2("e", "e/inner", RENAME_EXCHANGE);
    // Observed through other names, which do not change.
    c.make("f");
    c.link("f", "f2");
    c.make("g");
    c.link("g", "g2");
    c.moved("exchange", {"f2", "g2", "."}, [&] { c.renameat2("f", "g", RENAME_EXCHANGE); });
    c.list(".");
}

void bad_flags(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a");
    c.make("b");
    c.renameat2("a", "b", RENAME_NOREPLACE | RENAME_EXCHANGE);
    c.renameat2("a", "b", RENAME_WHITEOUT | RENAME_EXCHANGE);
    c.renameat2("a", "b", 0x80);
    c.renameat2("none", "b", 0x80);
    c.list(".");
}

// As overlayfs does; the old name becomes a device 0:0.
void whiteout(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a", "a");
    c.renameat2("a", "b", RENAME_WHITEOUT);
    c.stat("a");
    c.content("b");
}

constexpr Scenario kScenarios[] = {
    {"rename_files", files, false},
    {"rename_directories", directories, false},
    {"rename_link_counts", link_counts, false},
    {"rename_same_inode", same_inode, false},
    {"rename_over_open", over_an_open_file, false},
    {"rename_symlinks", symlinks, false},
    {"rename_no_replace", no_replace, false},
    {"rename_exchange", exchange, false},
    {"rename_bad_flags", bad_flags, false},
    {"rename_whiteout", whiteout, true},
};

}  // namespace

std::span<const Scenario> rename_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
