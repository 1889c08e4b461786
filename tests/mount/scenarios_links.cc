// Hard links and symbolic links.
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void hard_links(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("a", "shared");
    c.mkdir("d", 0755);
    c.link("a", "b");
    c.link("b", "d/c");
    c.same_inode("a", "b");
    c.same_inode("a", "d/c");
    for (const auto* name : {"a", "b", "d/c"}) c.stat(name);
    c.make("d/c", "written through one name");
    c.content("a");
    c.chmod("b", 0600);
    c.stat("a");
    c.unlink("a");
    c.stat("b");
    c.unlink("d/c");
    c.stat("b");
    c.content("b");
    c.make("a");
    c.same_inode("a", "b");
    c.unlink("b");
    c.list(".");
}

void hard_links_refused(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.make("g");
    c.mkdir("d", 0755);
    c.symlink("nowhere", "dangling");
    c.link("none", "x");
    c.link("f", "g");
    c.link("f", "f");
    c.link("f", "d");
    c.link("f", "dangling");
    c.link("d", "x");
    c.link("d", "g");
    c.link("f", "no/x");
    c.link("f", "g/x");
    c.link("g/x", "x");
    c.link("f", "x/");
    c.link("f", "d/");
    recorder.result("linkat with a bad flag",
                    ::linkat(AT_FDCWD, c.at("f").c_str(), AT_FDCWD, c.at("x").c_str(), 0x8000));
    c.stat("f");
    c.list(".");
}

void links_to_symlinks(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.symlink("f", "s");
    c.link("s", "not_followed");  // a second name of the symlink itself
    c.stat("not_followed");
    c.stat("s");
    recorder.result("linkat(AT_SYMLINK_FOLLOW)",
                    ::linkat(AT_FDCWD, c.at("s").c_str(), AT_FDCWD, c.at("followed").c_str(), AT_SYMLINK_FOLLOW));
    c.same_inode("f", "followed");
    c.symlink("nowhere", "dangling");
    c.link("dangling", "dangling2");
    c.readlink("dangling2");
    recorder.result("linkat of a dangling one, followed",
                    ::linkat(AT_FDCWD, c.at("dangling").c_str(), AT_FDCWD, c.at("x").c_str(), AT_SYMLINK_FOLLOW));
}

void many_links(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    int failed = 0;
    for (int i = 0; i < 500; ++i) failed += ::link(c.at("f").c_str(), c.at(fmt::format("l{}", i)).c_str()) != 0;
    recorder.line(fmt::format("  {} failed", failed));
    c.stat("l7");
    for (int i = 0; i < 500; i += 2) ::unlink(c.at(fmt::format("l{}", i)).c_str());
    c.stat("f");
    c.unlink("f");
    c.stat("l1");
}

void symbolic_links(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", "bytes");
    c.mkdir("d", 0755);
    c.make("d/g", "deep");
    c.symlink("f", "s");
    c.stat("s");
    c.stat_target("s");
    c.readlink("s");
    c.readlink("s", 1);
    c.readlink("s", 0);
    c.readlink("f");
    c.readlink("d");
    c.readlink("none");
    c.readlink("f/x");
    c.symlink("d", "sd");
    c.content("sd/g");
    c.stat("sd/");
    c.stat("s/");
    c.symlink("../d/g", "d/up");
    c.content("d/up");
    c.symlink(dir + "/f", "absolute");
    c.content("absolute");
    c.symlink("x", "f");
    c.symlink("x", "s");
    c.symlink("x", "d");
    c.symlink("x", "no/s");
    c.symlink("x", "f/s");
    c.symlink("", "empty");
    c.symlink("x", "trailing/");
    c.chmod("s", 0600);  // changes the target
    c.stat("s");
    c.stat("f");
    recorder.result("fchmodat(AT_SYMLINK_NOFOLLOW)",
                    ::fchmodat(AT_FDCWD, c.at("s").c_str(), 0600, AT_SYMLINK_NOFOLLOW));
    c.truncate("s", 2);
    c.content("f");
    c.list(".");
}

void symlink_targets(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    int number = 0;
    // tmpfs stores short and long targets differently. 4095 bytes is the maximum of a path.
    for (const size_t length : {1, 127, 128, 1023, 1024, 4094, 4095, 4096, 8000}) {
        const auto name = fmt::format("s{}", number++);
        c.symlink(std::string(length, 't'), name);
        c.stat(name);
        c.readlink(name);
        c.access(name, F_OK);
    }
    c.symlink("a\nb\xff \\", "strange");
    c.readlink("strange");
}

void symlink_loops(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.symlink("self", "self");
    c.symlink("b", "a");
    c.symlink("a", "b");
    for (const auto* name : {"self", "a", "self/x", "a/x"}) {
        c.open(name, O_RDONLY);
        c.open(name, O_CREAT | O_RDWR, 0644);
        c.stat_target(name);
        c.chmod(name, 0644);
        c.chown(name, ::getuid(), ::getgid());
        c.truncate(name, 0);
        c.access(name, F_OK);
    }
    c.mkdir("self/d", 0755);
    c.rmdir("self/d");
    c.unlink("self/f");
    c.rename("a/x", "y");
    c.link("a/x", "y");
    c.unlink("self");
    // A chain of 40 is followed, one of 41 is not.
    c.make("chain0", "end");
    for (int i = 1; i <= 41; ++i)
        ::symlink(fmt::format("chain{}", i - 1).c_str(), c.at(fmt::format("chain{}", i)).c_str());
    c.content("chain40");
    c.content("chain41");
}

constexpr Scenario kScenarios[] = {
    {"links_hard", hard_links, false},
    {"links_hard_refused", hard_links_refused, false},
    {"links_to_symlinks", links_to_symlinks, false},
    {"links_many", many_links, false},
    {"links_symbolic", symbolic_links, false},
    {"links_targets", symlink_targets, false},
    {"links_loops", symlink_loops, false},
};

}  // namespace

std::span<const Scenario> link_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
