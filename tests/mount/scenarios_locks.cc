// Locks: those of flock() belong to the open file, those of fcntl() to the process.
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void whole_files(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    const int a = c.open("f", O_RDWR);
    const int b = c.open("f", O_RDONLY);
    const auto lock = [&](const char* what, int fd, int operation) {
        recorder.result(std::string("flock ") + what, ::flock(fd, operation | LOCK_NB));
    };
    lock("a exclusive", a, LOCK_EX);
    lock("b shared", b, LOCK_SH);
    lock("a shared", a, LOCK_SH);
    lock("b shared", b, LOCK_SH);
    lock("b exclusive", b, LOCK_EX);
    lock("a unlock", a, LOCK_UN);
    lock("b exclusive", b, LOCK_EX);
    lock("a shared", a, LOCK_SH);
    const int copy = c.dup(b);
    c.close(b);
    lock("a shared while a copy is open", a, LOCK_SH);
    c.in_child("an inherited descriptor", [&] {
        lock("again", copy, LOCK_EX);
        lock("unlock", copy, LOCK_UN);
        return 0;
    });
    lock("a exclusive", a, LOCK_EX);
    lock("nonsense", a, 0x40);
    c.in_child("another open file", [&] {
        const int own = c.open("f", O_RDONLY);
        lock("taken", own, LOCK_SH);
        return 0;
    });
    c.close(a);
    lock("after close", copy, LOCK_EX);
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    lock("a directory", folder, LOCK_EX);
}

int set_lock(Calls& c, const std::string& what, int fd, int command, short type, off_t start, off_t size) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = size;
    return static_cast<int>(c.log().result("lock " + what, ::fcntl(fd, command, &lock)));
}

void ask(Calls& c, const std::string& what, int fd, short type, off_t start, off_t size, pid_t expected) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = size;
    c.log().result("ask " + what, ::fcntl(fd, F_GETLK, &lock));
    static constexpr const char* kTypes[] = {"read", "write", "none"};
    if (lock.l_type == F_UNLCK) return c.log().line("  free");
    c.log().line(fmt::format("  {} at {} for {} by {}", kTypes[lock.l_type], lock.l_start, lock.l_len,
                             lock.l_pid == expected ? "the parent" : "somebody else"));
}

void ranges(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(100, 'x'));
    const int fd = c.open("f", O_RDWR);
    const pid_t parent = ::getpid();
    set_lock(c, "write 10-19", fd, F_SETLK, F_WRLCK, 10, 10);
    set_lock(c, "read 30-39", fd, F_SETLK, F_RDLCK, 30, 10);
    set_lock(c, "write to the end", fd, F_SETLK, F_WRLCK, 1000, 0);
    set_lock(c, "own again, as read", fd, F_SETLK, F_RDLCK, 15, 2);
    c.in_child("another process", [&] {
        set_lock(c, "read 10", fd, F_SETLK, F_RDLCK, 10, 1);
        set_lock(c, "read 15", fd, F_SETLK, F_RDLCK, 15, 2);
        set_lock(c, "read 30", fd, F_SETLK, F_RDLCK, 30, 5);
        set_lock(c, "write 30", fd, F_SETLK, F_WRLCK, 30, 5);
        set_lock(c, "write 20", fd, F_SETLK, F_WRLCK, 20, 10);
        set_lock(c, "far away", fd, F_SETLK, F_WRLCK, 1'000'000'000, 1);
        ask(c, "write 0-100", fd, F_WRLCK, 0, 100, parent);
        ask(c, "read 25-45", fd, F_RDLCK, 25, 20, parent);
        ask(c, "write 17-35", fd, F_WRLCK, 17, 18, parent);
        return 0;
    });
    set_lock(c, "unlock 10-19", fd, F_SETLK, F_UNLCK, 10, 10);
    c.in_child("another process", [&] { return set_lock(c, "write 10", fd, F_SETLK, F_WRLCK, 10, 10) == 0 ? 0 : 1; });
    // Closing any descriptor of the file drops all of the process's locks.
    c.close(c.open("f", O_RDONLY));
    c.in_child("another process", [&] { return set_lock(c, "write all", fd, F_SETLK, F_WRLCK, 0, 0) == 0 ? 0 : 1; });
    const int in = c.open("f", O_RDONLY);
    const int out = c.open("f", O_WRONLY);
    set_lock(c, "write on a read-only descriptor", in, F_SETLK, F_WRLCK, 0, 1);
    set_lock(c, "read on a write-only descriptor", out, F_SETLK, F_RDLCK, 0, 1);
    set_lock(c, "at a negative place", fd, F_SETLK, F_WRLCK, -1, 1);
}

void open_file_locks(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(100, 'x'));
    const int a = c.open("f", O_RDWR);
    const int b = c.open("f", O_RDWR);
    set_lock(c, "a write 0-9", a, F_OFD_SETLK, F_WRLCK, 0, 10);
    set_lock(c, "b read 5", b, F_OFD_SETLK, F_RDLCK, 5, 1);
    set_lock(c, "b read 10", b, F_OFD_SETLK, F_RDLCK, 10, 1);
    set_lock(c, "the process, read 5", a, F_SETLK, F_RDLCK, 5, 1);
    c.close(a);
    set_lock(c, "b read 5 after close", b, F_OFD_SETLK, F_RDLCK, 5, 1);
}

// A process waits for the lock of another; the lock determines the order of the records.
void waiting(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f");
    const int fd = c.open("f", O_RDWR);
    for (const bool whole : {false, true}) {
        const auto lock = [&](int file, bool take) {
            if (whole) return ::flock(file, take ? LOCK_EX : LOCK_UN);
            struct flock range{};
            range.l_type = take ? F_WRLCK : F_UNLCK;
            return ::fcntl(file, F_SETLKW, &range);
        };
        recorder.result("take", lock(fd, true));
        int ready[2] = {-1, -1};
        recorder.result("pipe", ::pipe2(ready, O_CLOEXEC));
        c.in_child("a third process", [&] {
            const pid_t waiter = ::fork();
            if (waiter == 0) {
                const int own = ::open(c.at("f").c_str(), O_RDWR | O_CLOEXEC);
                ::write(ready[1], "r", 1);
                // Its log is read after it ends, and it ends after "give".
                ::_exit(lock(own, true) == 0 ? 0 : 1);
            }
            return waiter > 0 ? 0 : 1;
        });
        char byte = 0;
        ::read(ready[0], &byte, 1);
        pause_for_clock();  // the child now waits, or soon will
        recorder.result("give", lock(fd, false));
        ::close(ready[1]);
        recorder.result("the waiter has ended", ::read(ready[0], &byte, 1));
        recorder.result("take again", lock(fd, true));
        recorder.result("give again", lock(fd, false));
    }
}

constexpr Scenario kScenarios[] = {
    {"locks_whole_files", whole_files, false},
    {"locks_ranges", ranges, false},
    {"locks_open_files", open_file_locks, false},
    {"locks_waiting", waiting, false},
};

}  // namespace

std::span<const Scenario> lock_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test
