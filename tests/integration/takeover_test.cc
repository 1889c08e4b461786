// Failures of a takeover, and restarts with other options.
#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class Replaced : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:64M"})) << log();
        client_ = connect();
        auto object = create(client_.get(), "a", 5000, "host", GSHM_KEEP);
        ASSERT_EQ(gshm_fill(object.get(), 0, 5000, 9), 0);
    }
    RunResult run_daemon(std::vector<std::string> args) {
        args.insert(args.begin(), {bin("gshmd"), "--dir", dir(), "-f"});
        ChildProcess child;
        child.spawn(args);
        return child.finish();
    }
    void expect_all_there() {
        auto other = connect();
        gshm_object* object = nullptr;
        ASSERT_EQ(gshm_open(other.get(), "a", GSHM_NO_MAP, &object), 0) << gshm_last_error();
        uint8_t byte = 0;
        EXPECT_EQ(gshm_copy_out(object, 4999, &byte, 1), 0) << gshm_last_error();
        EXPECT_EQ(byte, 9);
        gshm_close(object);
    }
};

TEST_F(Replaced, ATakeoverThatCannotSucceedLeavesTheOldOneServing) {
    const pid_t before = pid();
    auto wrong = run_daemon({"--takeover", "--device", "tape"});
    EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
    EXPECT_NE(wrong.err.find("tape"), std::string::npos) << wrong.err;
    for (const char* keeper : {"none", "systemd"}) {
        auto other = run_daemon({"--takeover", "--keeper", keeper});
        EXPECT_EQ(other.exit_code, 2) << other.err;
    }
    EXPECT_TRUE(running());
    EXPECT_EQ(pid(), before);
    expect_all_there();
}

TEST_F(Replaced, TheNextOneDoesNotAwaitItself) {
    ChildProcess next;
    ASSERT_TRUE(next.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}));
    EXPECT_EQ(wait_for_end(), 0) << log();
    gshm_daemon_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_daemon(client_.get(), &info), 0) << gshm_last_error();
    EXPECT_EQ(info.pid, next.pid());
    EXPECT_EQ(info.sessions, 1u);
    expect_all_there();
    EXPECT_EQ(gshm_shutdown(client_.get(), 0), 0);
    EXPECT_EQ(next.wait(20s), 0);
}

TEST_F(Replaced, WithoutAKeeperThereIsNothingToTakeOver) {
    EXPECT_EQ(stop(), 0);
    EXPECT_EQ(run_daemon({"--takeover"}).exit_code, 1);
    EXPECT_FALSE(std::filesystem::exists(dir()));
    ASSERT_TRUE(start({"--device", "host:64M", "--keeper", "none"})) << log();
    auto refused = run_daemon({"--takeover"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("nothing to take over"), std::string::npos) << refused.err;
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    auto kept = run_cli({"shutdown", "--keep"});
    EXPECT_EQ(kept.exit_code, 9) << kept.err;
}

TEST_F(Replaced, AnotherKeeperIsNotChosenOverWhatIsKept) {
    kill();
    auto refused = run_daemon({"--device", "host:64M", "--keeper", "none"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("--discard"), std::string::npos) << refused.err;
    ASSERT_TRUE(start({})) << log();
    expect_all_there();
    kill();
    ASSERT_GT(keeper_pid(), 0);
    ASSERT_TRUE(start({"--device", "host:64M", "--keeper", "none", "--discard"})) << log();
    EXPECT_EQ(run_cli({"ls"}).out, "");
    EXPECT_EQ(keeper_pid(), 0) << "nobody is left with the memory";
}

TEST_F(Replaced, AStartThatFailsChangesNothing) {
    kill();
    EXPECT_EQ(run_daemon({"--device", "tape"}).exit_code, 1);
    EXPECT_EQ(run_daemon({"--device", "host:64M", scratch() + "/nowhere"}).exit_code, 1);
    ASSERT_TRUE(start({})) << log();  // with its previous devices
    expect_all_there();
}

TEST_F(Replaced, ASuccessorThatDiesIsForgotten) {
    // Kills the new daemon at various points of the takeover.
    ChildProcess next;
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(next.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}));
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
        next.signal(SIGKILL);
        next.wait(10s);
        next.reset();
        // The kill was too late for the old daemon to continue, or too early for the new one to start.
        if (!running() || run_cli({"ping"}).exit_code != 0) {
            wait_for_end();
            ASSERT_TRUE(start({})) << log();
        }
        expect_all_there();
    }
}

TEST_F(Replaced, ARuntimeFolderOfOthersIsRefused) {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    const std::string folder = scratch() + "/theirs";
    ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
    ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
    ChildProcess child;
    child.spawn({bin("gshmd"), "--dir", folder, "-f", "--device", "host:64M"});
    auto refused = child.finish();
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("runtime folder"), std::string::npos) << refused.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(Replaced, TheFolderGoesWithTheLast) {
    kill();
    ASSERT_TRUE(start({})) << log();
    const pid_t keeper = keeper_pid();  // not a child of this daemon
    ::kill(keeper, SIGKILL);
    while (keeper_pid() == keeper || keeper_pid() == 0) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(gshm_ping(client_.get()), 0);  // the new keeper has all descriptors by now
    kill();
    ASSERT_TRUE(start({})) << log();
    expect_all_there();
    EXPECT_EQ(stop(), 0);
    EXPECT_FALSE(std::filesystem::exists(dir())) << "made by the first, gone with the last";
}

}  // namespace
}  // namespace gshm::core::test
