// `kill -9 $(cat gshm.lock); gshmd` was refused: a killed process holds its lock until the kernel has torn it down.
#include <csignal>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/library_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

class Restart : public LibraryTest {
protected:
    // A process that holds the lock, like a gshmd. `body` runs in it.
    pid_t hold_lock(const std::function<void()>& body) {
        std::filesystem::create_directory(dir());
        int ready[2];
        if (::pipe2(ready, O_CLOEXEC) != 0) return -1;
        const pid_t child = fork();
        if (child == 0) {
            const int lock = ::open((dir() + "/gshm.lock").c_str(), O_RDWR | O_CREAT, 0644);
            const std::string pid = std::to_string(getpid());
            if (flock(lock, LOCK_EX) != 0 || ::write(lock, pid.data(), pid.size()) < 0) _exit(1);
            [[maybe_unused]] ssize_t told = ::write(ready[1], "r", 1);
            body();
            _exit(0);
        }
        char byte = 0;
        const bool locked = ::read(ready[0], &byte, 1) == 1;
        ::close(ready[0]);
        ::close(ready[1]);
        return locked ? child : -1;
    }
    bool waits_for(pid_t pid) {
        return eventually([&] { return log().find("waiting for pid " + std::to_string(pid)) != std::string::npos; });
    }
    bool serves() {
        return eventually([&] { return log().find("is ready at") != std::string::npos; });
    }
};

TEST_F(Restart, WaitsForAProcessThatIsKilledAndCannotDie) {
    auto silent = SilentFile::create(scratch() + "/silent", 4096);
    if (!silent) GTEST_SKIP() << "no FUSE mount is permitted here";
    const std::string path = scratch() + "/silent";
    const pid_t holder = hold_lock([&] {
        char byte;
        const int file = ::open(path.c_str(), O_RDONLY);
        [[maybe_unused]] ssize_t got = ::read(file, &byte, 1);  // no reply comes
    });
    ASSERT_GT(holder, 0);
    ASSERT_TRUE(eventually([&] { return silent->ignored() > 0; }));
    ::kill(holder, SIGKILL);
    ASSERT_TRUE(begin_to_start({"--device", "host:64M"}));
    ASSERT_TRUE(waits_for(holder)) << log();
    EXPECT_TRUE(running());
    silent.reset();
    EXPECT_TRUE(serves()) << log();
    ::waitpid(holder, nullptr, 0);
}

// A daemon that is killed while it starts a program: the child holds the lock until its exec.
TEST_F(Restart, WaitsForAChildThatHasTheLockOfADeadProcess) {
    int go[2];
    int begun[2];
    ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(begun, O_CLOEXEC), 0);
    char byte = 0;
    const pid_t holder = hold_lock([&] {
        if (fork() != 0) pause();
        ::close(go[1]);
        [[maybe_unused]] ssize_t told = ::write(begun[1], "b", 1);
        [[maybe_unused]] ssize_t got = ::read(go[0], &byte, 1);
    });
    ASSERT_GT(holder, 0);
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    ASSERT_TRUE(begin_to_start({"--device", "host:64M"}));
    EXPECT_TRUE(waits_for(holder)) << log();
    EXPECT_TRUE(running());
    for (int fd : {go[0], go[1], begun[0], begun[1]}) ::close(fd);
    EXPECT_TRUE(serves()) << log();
}

TEST_F(Restart, IsRefusedAtOnceWhileOneRuns) {
    const pid_t holder = hold_lock([] { pause(); });
    ASSERT_GT(holder, 0);
    EXPECT_FALSE(start({"--device", "host:64M"}));
    EXPECT_NE(log().find("already running"), std::string::npos) << log();
    EXPECT_EQ(log().find("waiting"), std::string::npos) << log();
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
}

// The commands of the README.
TEST_F(Restart, RightAfterAKill) {
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    stop();
    const std::string script = "set -e; G='" + bin("gshmd") + "'; $G --dir '" + dir() +
                               "' --device host:64M; for i in 1 2 3 4 5; do "
                               "kill -9 $(cat '" +
                               dir() + "/gshm.lock'); $G --dir '" + dir() + "'; done; '" + bin("gshm") + "' --dir '" +
                               dir() + "' shutdown; $G --dir '" + dir() + "' --device host:64M; '" + bin("gshm") +
                               "' --dir '" + dir() + "' shutdown";
    ChildProcess shell;
    ASSERT_TRUE(shell.spawn({"/bin/bash", "-c", script}));
    auto result = shell.finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace gshm::core::test
