// Fifos, sockets and devices. Devices are never opened: mounts are nodev.
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void fifos(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    recorder.result("mkfifo", ::mkfifo(c.at("p").c_str(), 0666));
    c.stat("p");
    recorder.result("mkfifo again", ::mkfifo(c.at("p").c_str(), 0666));
    c.open("p", O_WRONLY | O_NONBLOCK);  // no reader
    const int in = c.open("p", O_RDONLY | O_NONBLOCK);
    const int out = c.open("p", O_WRONLY | O_NONBLOCK);
    c.write(out, "through the fifo");
    c.read(in, 100);
    c.read(in, 100);
    c.seek(in, 0, SEEK_SET);
    c.ftruncate(out, 0);
    c.truncate("p", 0);
    c.link("p", "q");
    c.stat("q");
    c.rename("q", "r");
    c.unlink("p");
    c.write(out, "more");
    c.read(in, 100);
    c.fstat(in);
    c.open("r", O_RDONLY | O_DIRECTORY);
    c.mkdir("r/x", 0755);
    c.list(".");
}

void regular_by_mknod(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mknod("f", S_IFREG | 0666);
    c.stat("f");
    c.mknod("g", 0640);  // no type: a file
    c.stat("g");
    c.mknod("f", S_IFREG | 0666);
    c.mknod("d", S_IFDIR | 0755);
    c.mknod("l", S_IFLNK | 0777);
    c.mknod("strange", 0170000 | 0644);
    c.mknod("s", S_IFSOCK | 0755);
    c.stat("s");
    c.open("s", O_RDWR);
    c.list(".");
}

void sockets(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    // A socket's address has room for 107 bytes, so it is bound from inside the directory.
    recorder.result("chdir", ::chdir(dir.c_str()));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, "sock");
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    recorder.result("bind", ::bind(server, generic, sizeof address));
    c.stat("sock");
    recorder.result("listen", ::listen(server, 4));
    const int second = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    recorder.result("bind again", ::bind(second, generic, sizeof address));
    const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    recorder.result("connect", ::connect(client, generic, sizeof address));
    const int accepted = ::accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
    recorder.result("send", ::send(client, "hello", 5, 0));
    char bytes[16];
    recorder.result("recv", ::recv(accepted, bytes, sizeof bytes, 0));
    c.open("sock", O_RDWR);
    c.rename("sock", "moved");
    std::strcpy(address.sun_path, "moved");
    const int third = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    recorder.result("connect after rename", ::connect(third, generic, sizeof address));
    ::close(server);
    recorder.result("connect without a listener", ::connect(second, generic, sizeof address));
    c.unlink("moved");
    recorder.result("connect without the name", ::connect(second, generic, sizeof address));
}

void devices(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mknod("null", S_IFCHR | 0666, makedev(1, 3));
    c.mknod("block", S_IFBLK | 0660, makedev(7, 200));
    c.mknod("large", S_IFCHR | 0600, makedev(4095, 1048575));
    for (const auto* name : {"null", "block", "large"}) c.stat(name);
    c.chmod("null", 0600);
    c.chown("null", 12345, 54321);
    c.stat("null");
    c.link("null", "second");
    c.rename("second", "third");
    c.stat("third");
    c.truncate("null", 0);
    c.list(".");
    c.as(kNobody, [&] {
        c.mknod("theirs", S_IFCHR | 0666, makedev(1, 3));
        c.mknod("theirs", S_IFIFO | 0666);
        c.open("null", O_RDWR);
    });
}

constexpr Scenario kScenarios[] = {
    {"special_fifos", fifos, false},
    {"special_mknod", regular_by_mknod, false},
    {"special_sockets", sockets, false},
    {"special_devices", devices, true},
};

}  // namespace

std::span<const Scenario> special_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
