// Names: creation, removal, length, characters.
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void make_directories(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.stat(".");
    c.mkdir("d", 0777);  // without the bits of the umask
    c.stat("d");
    c.stat(".");
    c.mkdir("d", 0755);
    c.mkdir("slash/", 0700);
    c.mkdir("d/e", 0755);
    c.mkdir("d/e/f", 0755);
    c.stat("d");
    c.mkdir("no/d", 0755);
    c.make("file");
    c.mkdir("file", 0755);
    c.mkdir("file/d", 0755);
    c.symlink("nowhere", "dangling");
    c.mkdir("dangling", 0755);
    c.mkdir("sticky", 01777);
    c.stat("sticky");
    c.mkdir("suid", 06755);  // mkdir drops these
    c.stat("suid");
    c.mkdir(".", 0755);
    c.mkdir("d/..", 0755);
    c.list(".");
}

void remove_directories(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    c.mkdir("d/e", 0755);
    c.make("d/f");
    c.symlink("d/e", "to_e");
    c.rmdir("d");
    c.rmdir("d/f");
    c.rmdir("none");
    c.rmdir("none/d");
    c.rmdir("d/f/g");
    c.rmdir("d/e/.");
    c.rmdir("d/e/..");
    c.rmdir("d/..");
    c.rmdir("to_e");
    c.rmdir("to_e/");
    c.unlink("d/f");
    c.rmdir("d/e/");
    c.stat("d");
    c.rmdir("d");
    c.stat(".");
    c.list(".");
}

void unlink_names(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    c.symlink("f", "to_f");
    c.symlink("nowhere", "dangling");
    c.symlink("d", "to_d");
    c.unlink("d");
    c.unlink("d/");
    c.unlink("none");
    c.unlink("f/");
    c.unlink("f/x");
    c.unlink("to_d/");
    c.unlink(".");
    c.unlink("d/..");
    c.unlink("to_f");
    c.unlink("dangling");
    c.unlink("f");
    c.unlink("f");
    c.list(".");
    recorder.result("unlinkat with a bad flag", ::unlinkat(AT_FDCWD, c.at("d").c_str(), 0x8000));
    recorder.result("unlinkat(AT_REMOVEDIR) of a symlink", ::unlinkat(AT_FDCWD, c.at("to_d").c_str(), AT_REMOVEDIR));
}

// A deleted directory that is still open or a working directory.
void deleted_directory(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    const int fd = c.open("d", O_RDONLY | O_DIRECTORY);
    recorder.result("chdir(d)", ::chdir(c.at("d").c_str()));
    c.rmdir("d");
    c.fstat(fd);
    char path[4096];
    recorder.success("getcwd", ::getcwd(path, sizeof path) ? 0 : -1);
    c.openat(fd, "new", O_CREAT | O_WRONLY, 0644);
    recorder.result("mkdirat in it", ::mkdirat(fd, "new", 0755));
    recorder.result("symlinkat in it", ::symlinkat("x", fd, "new"));
    c.make("f");
    recorder.result("linkat into it", ::linkat(AT_FDCWD, c.at("f").c_str(), fd, "new", 0));
    recorder.result("renameat into it", ::renameat(AT_FDCWD, c.at("f").c_str(), fd, "new"));
    recorder.result("chdir(..)", ::chdir(".."));
    c.mkdir("d", 0755);
    c.list("d");
    c.openat(fd, ".", O_RDONLY | O_DIRECTORY);
}

void long_names(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const std::string longest(255, 'n'), too_long(256, 'n'), far_too_long(2000, 'n');
    struct statvfs fs{};
    recorder.result("statvfs", ::statvfs(dir.c_str(), &fs));
    recorder.line(fmt::format("  longest name {}", fs.f_namemax));
    c.close(c.open(longest, O_CREAT | O_RDWR, 0644));
    c.stat(longest);
    c.list(".");
    c.rename(longest, std::string(255, 'r'));
    c.unlink(std::string(255, 'r'));
    c.mkdir(longest, 0755);
    c.rmdir(longest);
    c.make("f");
    for (const auto& name : {too_long, far_too_long}) {
        c.open(name, O_CREAT | O_RDWR, 0644);
        c.open(name, O_RDONLY);
        c.stat(name);
        c.mkdir(name, 0755);
        c.rmdir(name);
        c.unlink(name);
        c.link("f", name);
        c.symlink("f", name);
        c.rename("f", name);
        c.rename(name, "g");
        c.mknod(name, S_IFIFO | 0644);
        c.truncate(name, 0);
        c.chmod(name, 0644);
        c.access(name + "/x", F_OK);
    }
    c.list(".");
}

// A path may have 4095 bytes; each name in it is short.
void long_paths(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const auto path_of = [&](size_t total) {  // below dir, made of directories of 100 bytes
        std::string path;
        while (dir.size() + 1 + path.size() + 101 < total - 1) path += std::string(100, 'p') + "/";
        return path + std::string(total - dir.size() - 1 - path.size(), 'q');
    };
    const auto longest = path_of(4095);
    for (size_t slash = longest.find('/'); slash != std::string::npos; slash = longest.find('/', slash + 1))
        if (::mkdir(c.at(longest.substr(0, slash)).c_str(), 0755) != 0) c.mkdir(longest.substr(0, slash), 0755);
    // The log has labels instead of paths, since the length below `dir` depends on the length of `dir`.
    const auto touch = [&](const char* what, const std::string& path) {
        const int fd = ::open(c.at(path).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
        recorder.success(what, fd);
        if (fd >= 0) ::close(fd);
    };
    touch("create by a path of 4095 bytes", longest);
    touch("create by a path of 4096 bytes", longest + "q");
    recorder.result("access", ::access(c.at(longest).c_str(), F_OK));
    recorder.result("rename", ::rename(c.at(longest).c_str(), c.at("f").c_str()));
    c.stat("f");
}

void strange_names(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const std::vector<std::string> names = {
        "a b",         " leading",     "trailing ", "-rf",      "--",   "new\nline", "tab\t", "...",
        "back\\slash", "quote'\"",     "*?[x]",     "$HOME",    "`x`",  "~",         "\x01",  "\x7f\x80\xff",
        "\xc3\x28",    "\xe2\x82\xac", "e\xcc\x81", "\xc3\xa9", "CASE", "case",      "#",     "%2F",
        ":",           ".hidden",
    };
    for (const auto& name : names) {
        c.make(name, name);
        c.stat(name);
        c.content(name);
    }
    c.list(".");
    for (const auto& name : names) {
        c.rename(name, name + "\n");
        c.symlink(name, "link");
        c.readlink("link");
        c.unlink("link");
        c.unlink(name + "\n");
    }
    c.list(".");
}

constexpr Scenario kScenarios[] = {
    {"names_make_directories", make_directories, false},
    {"names_remove_directories", remove_directories, false},
    {"names_unlink", unlink_names, false},
    {"names_deleted_directory", deleted_directory, false},
    {"names_long", long_names, false},
    {"names_long_paths", long_paths, false},
    {"names_strange", strange_names, false},
};

}  // namespace

std::span<const Scenario> name_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
