// The process that notifies the kernel of changes by the library: killed, stopped, and blocked in the kernel.
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>

#include "mount/survival_fixture.h"

namespace gshm::core::test {
namespace {

class MountNotices : public SurvivalTest {
protected:
    // The pid of the process that gshmd started; 0: none.
    pid_t helper() {
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            std::ifstream stat(entry.path() / "stat");
            std::string pid, name, state;
            pid_t parent = 0;
            if (!(stat >> pid >> name >> state >> parent)) continue;
            if (name == "(gshm-notices)" && parent == this->pid() && state != "Z") return std::stoi(pid);
        }
        return 0;
    }
    static char state_of(pid_t pid) {
        std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
        std::string number, name, state;
        return stat >> number >> name >> state ? state[0] : '?';
    }
    // Makes an object with a dentry in the kernel.
    static std::string make_known(const Client& client, const std::string& path, const std::string& name) {
        auto made = client.create({.name = name, .size_bytes = 4096, .device = "host", .keep = true, .map = false});
        if (!made) return made.error().message;
        struct stat info = {};
        return stat(path.c_str(), &info) == 0 ? "" : failed("stat");
    }
    // Removes it by the library. The kernel must then drop its dentry.
    std::string remove_known(const Client& client, const std::string& name) {
        if (auto gone = client.unlink(name); !gone) return gone.error().message;
        return eventually([&] { return access(at(name).c_str(), F_OK) != 0 && errno == ENOENT; }) ? "" : "still there";
    }
    Client connect() {
        auto client = Client::connect({.dir = dir()});
        EXPECT_TRUE(client) << client.error().message;
        return *std::move(client);
    }
};

TEST_P(MountNotices, AnotherIsStartedForOneThatIsKilled) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Client client = connect();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(make_known(client, at("f"), "f"), "");
        ASSERT_TRUE(eventually([&] { return helper() != 0; }));
        const pid_t killed = helper();
        ASSERT_EQ(::kill(killed, SIGKILL), 0);
        EXPECT_EQ(remove_known(client, "f"), "");
        EXPECT_TRUE(eventually([&] {
            const pid_t next = helper();
            return next != 0 && next != killed;
        }));
    }
    // No such process is left behind, not even a zombie.
    const pid_t last = helper();
    stop();
    EXPECT_EQ(::kill(last, 0), -1);
    EXPECT_EQ(errno, ESRCH);
}

TEST_P(MountNotices, OneThatIsStoppedDoesNotKeepTheDaemonFromEnding) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Client client = connect();
    ASSERT_EQ(make_known(client, at("f"), "f"), "");
    ASSERT_TRUE(eventually([&] { return helper() != 0; }));
    const pid_t stopped = helper();
    ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
    ASSERT_TRUE(client.unlink("f"));
    client = {};
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
    EXPECT_TRUE(eventually([&] { return !running(); }));
    EXPECT_TRUE(eventually([&] { return state_of(stopped) == 'Z' || state_of(stopped) == '?'; }));
}

// kill() returns before all threads have stopped.
bool is_stopped(pid_t pid) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        std::ifstream file(task.path() / "stat");
        const std::string stat{std::istreambuf_iterator<char>(file), {}};
        const size_t name_end = stat.rfind(')');
        if (name_end == std::string::npos || stat[name_end + 2] != 'T') return false;
    }
    return true;
}

// The process waits for the folder's lock, the holder of the lock waits for the daemon, and the daemon is dead. If the
// next daemon cannot resume the mount, no reply will ever come.
TEST_P(MountNotices, OneThatWaitsForTheDeadDoesNotKeepTheNextOut) {
    ASSERT_TRUE(start_mounted(GetParam(), {}, {"--keeper", "none"})) << log();
    Client client = connect();
    ASSERT_EQ(make_known(client, at("f"), "f"), "");
    ASSERT_TRUE(eventually([&] { return helper() != 0; }));
    const pid_t waits = helper();
    ASSERT_EQ(::kill(waits, SIGSTOP), 0);
    ASSERT_TRUE(client.unlink("f"));
    ASSERT_EQ(::kill(pid(), SIGSTOP), 0);
    ASSERT_TRUE(eventually([&] { return is_stopped(pid()); }));
    const pid_t maker = fork();
    if (maker == 0) _exit(mkdir(at("d").c_str(), 0755) == 0 ? 0 : 1);
    ASSERT_TRUE(eventually([&] { return state_of(maker) == 'D' || state_of(maker) == 'S'; }));
    usleep(100'000);  // it holds the folder's lock now; without it the test passes but tests less
    ASSERT_EQ(::kill(waits, SIGCONT), 0);
    usleep(100'000);
    kill();
    client = {};
    EXPECT_TRUE(start_mounted(GetParam())) << log();
    int status = 0;
    ASSERT_EQ(waitpid(maker, &status, 0), maker);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_TRUE(write_file(at("anew"), "bytes"));
}

// The file was looked up at the killed daemon, and was replaced since.
TEST_P(MountNotices, AFormerVersionIsItselfOrGoneButNotEmpty) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    const std::string bytes = pattern(200'000, 1);
    ASSERT_TRUE(write_file(at("f"), bytes));
    const int known = open(at("f").c_str(), O_PATH | O_CLOEXEC);
    ASSERT_GE(known, 0);
    kill();
    ASSERT_TRUE(again()) << log();
    {
        Client client = connect();
        auto made = client.create(
            {.name = "f", .size_bytes = 100, .device = "host", .mode = 0644, .map = false, .unnamed = true});
        ASSERT_TRUE(made) << made.error().message;
        ASSERT_TRUE(made->fill('n'));
        ASSERT_TRUE(made->replace("f"));
    }
    const int opened = open(("/proc/self/fd/" + std::to_string(known)).c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) {
        EXPECT_EQ(errno, ESTALE);
    } else {
        std::string got(bytes.size(), '\0');
        EXPECT_EQ(pread(opened, got.data(), got.size(), 0), static_cast<ssize_t>(got.size()));
        EXPECT_EQ(got, bytes);
        close(opened);
    }
    close(known);
    EXPECT_EQ(read_file(at("f")), std::string(100, 'n'));
    EXPECT_TRUE(frees_all());
}

INSTANTIATE_TEST_SUITE_P(Ways, MountNotices, ::testing::Values(Way::passthrough, Way::through, Way::cuda), way_of);

}  // namespace
}  // namespace gshm::core::test
