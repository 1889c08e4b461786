// Extended attributes of users. Other namespaces depend on the machine.
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void set_and_get(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.mkdir("d", 0755);
    for (const auto* name : {"f", "d"}) {
        c.list_attributes(name);
        c.attribute(name, "user.test.a");
        c.set_attribute(name, "user.test.a", "value");
        c.attribute(name, "user.test.a");
        c.set_attribute(name, "user.test.a", "another value");
        c.attribute(name, "user.test.a");
        c.set_attribute(name, "user.test.empty", "");
        c.attribute(name, "user.test.empty");
        c.set_attribute(name, "user.test.bytes", std::string("\0\xff\n\0x", 5));
        c.attribute(name, "user.test.bytes");
        c.list_attributes(name);
        c.remove_attribute(name, "user.test.a");
        c.remove_attribute(name, "user.test.a");
        c.attribute(name, "user.test.a");
        c.list_attributes(name);
    }
}

void flags(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.set_attribute("f", "user.test.a", "1", XATTR_REPLACE);
    c.set_attribute("f", "user.test.a", "2", XATTR_CREATE);
    c.set_attribute("f", "user.test.a", "3", XATTR_CREATE);
    c.attribute("f", "user.test.a");
    c.set_attribute("f", "user.test.a", "4", XATTR_REPLACE);
    c.attribute("f", "user.test.a");
    c.set_attribute("f", "user.test.a", "5", XATTR_CREATE | XATTR_REPLACE);
    c.set_attribute("f", "user.test.b", "5", XATTR_CREATE | XATTR_REPLACE);
    c.set_attribute("f", "user.test.a", "6", 0x80);
    c.set_attribute("none", "user.test.a", "1");
    c.set_attribute("f/x", "user.test.a", "1");
    c.attribute("none", "user.test.a");
    c.remove_attribute("none", "user.test.a");
    c.list_attributes("none");
    c.list_attributes("f");
}

void sizes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.set_attribute("f", "user.test.a", "12345");
    c.attribute("f", "user.test.a", 0);  // asks for the size
    c.attribute("f", "user.test.a", 4);
    c.attribute("f", "user.test.a", 5);
    c.attribute("f", "user.test.none", 0);
    char small[1];
    recorder.result("listxattr into a short buffer", ::listxattr(c.at("f").c_str(), small, sizeof small));
    recorder.line(fmt::format("  listxattr asks for the size: {}", ::listxattr(c.at("f").c_str(), nullptr, 0) > 0));
    for (const size_t size : {1000, 4096, 20'000, 65'536, 65'537}) {
        c.set_attribute("f", "user.test.big", pattern(size, 1));
        c.attribute("f", "user.test.big");
    }
    c.remove_attribute("f", "user.test.big");
    const std::string prefix = "user.test.";
    for (const size_t length : {255, 256}) {
        const auto name = prefix + std::string(length - prefix.size(), 'n');
        c.set_attribute("f", name, "long");
        c.attribute("f", name);
        c.remove_attribute("f", name);
    }
    c.set_attribute("f", "user.", "no name");
    c.set_attribute("f", "", "no name");
    c.set_attribute("f", "unknown.test", "x");
    c.attribute("f", "unknown.test");
    c.attribute("f", "user.");
}

void kinds(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.symlink("f", "s");
    c.mknod("p", S_IFIFO | 0644);
    for (const auto* name : {"s", "p"}) {
        c.set_attribute(name, "user.test.a", "x");
        c.attribute(name, "user.test.a");
        c.remove_attribute(name, "user.test.a");
        c.list_attributes(name);
    }
    recorder.result("setxattr through the symlink", ::setxattr(c.at("s").c_str(), "user.test.a", "x", 1, 0));
    c.attribute("f", "user.test.a");
    const int fd = c.open("f", O_RDONLY);
    recorder.result("fsetxattr", ::fsetxattr(fd, "user.test.b", "y", 1, 0));
    char value[8];
    recorder.result("fgetxattr", ::fgetxattr(fd, "user.test.b", value, sizeof value));
    c.unlink("f");
    recorder.result("fgetxattr without a name", ::fgetxattr(fd, "user.test.b", value, sizeof value));
    recorder.result("fsetxattr without a name", ::fsetxattr(fd, "user.test.c", "y", 1, 0));
    recorder.result("fremovexattr", ::fremovexattr(fd, "user.test.b"));
}

// Attributes belong to the file: they follow a rename, and a new file of the same name does not have them.
void lasting(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    c.set_attribute("f", "user.test.a", "x");
    c.link("f", "g");
    c.rename("f", "h");
    c.attribute("g", "user.test.a");
    c.make("h", "truncated and written");
    c.attribute("h", "user.test.a");
    c.chmod("h", 0600);
    c.attribute("h", "user.test.a");
    c.unlink("g");
    c.unlink("h");
    c.make("h");
    c.list_attributes("h");
    for (int i = 0; i < 200; ++i) ::setxattr(c.at("h").c_str(), fmt::format("user.test.{:03}", i).c_str(), "v", 1, 0);
    c.list_attributes("h");
}

void rights(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    for (const mode_t mode : {0600, 0604, 0602, 0606}) {
        c.make("f");
        c.chmod("f", mode);
        c.set_attribute("f", "user.test.a", "x");
        c.as(kNobody, [&] {
            c.attribute("f", "user.test.a");
            c.list_attributes("f");
            c.set_attribute("f", "user.test.a", "y");
            c.set_attribute("f", "user.test.b", "y");
            c.remove_attribute("f", "user.test.a");
        });
        c.unlink("f");
    }
    c.mkdir("d", 0777);
    c.chmod("d", 01777);  // refused on a sticky directory of another user, even with the right to write
    c.as(kNobody, [&] { c.set_attribute("d", "user.test.a", "y"); });
    c.chmod("d", 0777);
    c.as(kNobody, [&] { c.set_attribute("d", "user.test.a", "y"); });
    c.make("owned");
    c.chown("owned", kNobody.uid, kNobody.gid);
    c.chmod("owned", 0400);
    c.as(kNobody, [&] {
        c.set_attribute("owned", "user.test.a", "y");
        c.chmod("owned", 0200);
        c.set_attribute("owned", "user.test.a", "y");
        c.attribute("owned", "user.test.a");
    });
}

constexpr Scenario kScenarios[] = {
    {"attributes_set_and_get", set_and_get, false},
    {"attributes_flags", flags, false},
    {"attributes_sizes", sizes, false},
    {"attributes_kinds", kinds, false},
    {"attributes_lasting", lasting, false},
    {"attributes_rights", rights, true},
};

}  // namespace

std::span<const Scenario> attribute_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
