// A keeper whose daemon was killed and whose runtime folder was removed held its memory forever, since no process could
// reach it.
#include <poll.h>
#include <sys/syscall.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class OrphanedKeeper : public LibraryTest {
protected:
    void SetUp() override { start_keeper(); }
    void start_keeper(const std::vector<std::string>& by = {}) {
        ASSERT_TRUE(start({"--device", "host:64M"}, {}, by)) << log();
        client_ = connect();
        ASSERT_TRUE(create(client_.get(), "object", 4096, "host", GSHM_KEEP));
        // Until the keeper runs, the socket belongs to the daemon.
        ASSERT_TRUE(eventually([&] { return (keeper_ = keeper_pid()) > 0 && keeper_ != pid(); }));
        end_ = static_cast<int>(syscall(SYS_pidfd_open, keeper_, 0));
        ASSERT_GE(end_, 0);
    }
    void TearDown() override { ::close(end_); }
    bool has_ended(int timeout_ms) const {
        pollfd end{end_, POLLIN, 0};
        return poll(&end, 1, timeout_ms) == 1;
    }
    pid_t keeper_ = 0;
    int end_ = -1;
};

TEST_F(OrphanedKeeper, EndsWhenItsFolderGoesAfterTheDaemon) {
    kill();
    EXPECT_FALSE(has_ended(0));
    std::filesystem::remove_all(dir());
    EXPECT_TRUE(has_ended(-1));
}

TEST_F(OrphanedKeeper, EndsWhenTheDaemonGoesAfterTheFolder) {
    std::filesystem::remove_all(dir());
    // When the keeper answers the daemon's next request, it has processed the removal.
    Object object = create(client_.get(), "another", 3 << 20, "host", GSHM_KEEP);
    EXPECT_TRUE(object);
    EXPECT_FALSE(has_ended(0));
    kill();
    EXPECT_TRUE(has_ended(-1));
}

TEST_F(OrphanedKeeper, StaysWhileOtherFilesOfTheFolderComeAndGo) {
    kill();
    std::ofstream(dir() + "/other") << "x";
    std::filesystem::remove(dir() + "/other");
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    EXPECT_EQ(keeper_pid(), keeper_);
    stat(connect().get(), "object");
}

// The keeper of this daemon has a /dev of its own, in which the test is syslog.
class OrphanedKeeperSyslog : public OrphanedKeeper {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "not root: a /dev of its own needs a mount namespace";
        const std::string folder = scratch() + "/dev";
        std::filesystem::create_directory(folder);
        syslog_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        snprintf(address.sun_path, sizeof address.sun_path, "%s/log", folder.c_str());
        ASSERT_EQ(bind(syslog_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << strerror(errno);
        const std::string script =
            "cd " + folder +
            " && for node in null zero urandom; do : > $node && mount --bind /dev/$node $node || exit 1; "
            "done && mount --rbind . /dev && cd / && exec \"$0\" \"$@\"";
        if (run_in_namespace("exit 0") != 0) GTEST_SKIP() << "no mount namespace of its own";
        start_keeper({"/usr/bin/unshare", "--mount", "/bin/sh", "-c", script});
    }
    void TearDown() override {
        OrphanedKeeper::TearDown();
        ::close(syslog_);
    }
    static int run_in_namespace(const std::string& script) {
        ChildProcess child;
        if (!child.spawn({"/usr/bin/unshare", "--mount", "/bin/sh", "-c", script})) return -1;
        return child.finish().exit_code;
    }
    int syslog_ = -1;
};

TEST_F(OrphanedKeeperSyslog, IsToldWhatIsLost) {
    kill();
    std::filesystem::remove_all(dir());
    EXPECT_TRUE(has_ended(-1));
    char said[2000] = {};
    ASSERT_GT(recv(syslog_, said, sizeof said - 1, MSG_DONTWAIT), 0) << "nothing was said: " << strerror(errno);
    const std::string line = said;
    EXPECT_NE(line.find("gshm-keeper[" + std::to_string(keeper_) + "]"), std::string::npos) << line;
    EXPECT_NE(line.find(dir() + "/keeper.sock has gone and no gshmd is connected"), std::string::npos) << line;
    EXPECT_NE(line.find(" descriptors, which are now closed"), std::string::npos) << line;
}

TEST_F(OrphanedKeeper, IsListedByDoctor) {
    kill();
    auto result = run_cli({"doctor", "--json"});
    EXPECT_NE(result.out.find("\"keepers\""), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(dir()), std::string::npos) << result.out;
    // Read again: while gshmd starts it, another process may listen at the socket for a moment.
    EXPECT_NE(result.out.find(std::to_string(keeper_pid())), std::string::npos) << result.out;
}

}  // namespace
}  // namespace gshm::core::test
