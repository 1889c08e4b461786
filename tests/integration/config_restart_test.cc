// gshm.toml over the life of a gshmd and of the ones that follow it: named by a relative path, recalled, gone.
#include "integration/config_fixture.h"

namespace gshm::core::test {
namespace {

class ConfigRestart : public ConfigTest {
protected:
    // The tests of ctest have GSHM_CONFIG=none, which would be stronger than a recalled file.
    void SetUp() override { ::unsetenv("GSHM_CONFIG"); }
    void TearDown() override { run_cli({"shutdown"}); }
    RunResult run_daemon(std::vector<std::string> args, const std::vector<std::string>& env = {}) {
        args.insert(args.begin(), {bin("gshmd"), "--dir", dir(), "-f"});
        ChildProcess child;
        child.spawn(args, env);
        return child.finish();
    }
    // gshmd in the background, started in the scratch folder.
    RunResult start_there(const std::string& arguments, const std::vector<std::string>& env = {}) {
        ChildProcess child;
        child.spawn({"/bin/sh", "-c",
                     "cd " + scratch() + " && exec " + bin("gshmd") + " --dir run --device host:64M " + arguments},
                    env);
        return child.finish();
    }
    std::string reload(const std::string& text) {
        write(text);
        const auto result = run_cli({"reload"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result.out;
    }
    std::string log_there() const {
        std::ifstream file(dir() + "/gshmd.log");
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Whether the gshmd that runs reads the file.
    void expect_reads_it() {
        EXPECT_EQ(reload("user-share = 30\n"), "user-share: 40 -> 30\n");
        EXPECT_EQ(reload("user-share = 40\n"), "user-share: 30 -> 40\n");
    }
};

TEST_F(ConfigRestart, ARelativePathIsThatOfTheStart) {
    write("user-share = 40\n");
    for (const std::vector<std::string>& env : {std::vector<std::string>{}, {"GSHM_CONFIG=gshm.toml"}}) {
        const auto started = start_there(env.empty() ? "--config gshm.toml" : "", env);
        ASSERT_EQ(started.exit_code, 0) << started.err;
        EXPECT_EQ(reload("user-share = 30\n"), "user-share: 40 -> 30\n");
        write("user-share = 40\n");
        pid_t daemon = 0;
        std::ifstream(dir() + "/gshm.lock") >> daemon;
        ASSERT_GT(daemon, 0);
        ASSERT_EQ(::kill(daemon, SIGHUP), 0);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (log_there().find("reload by SIGHUP") == std::string::npos && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_NE(log_there().find("reload by SIGHUP: user-share: 30 -> 40"), std::string::npos) << log_there();
        // The next one does not run in that folder.
        (void)take_over();  // false: the former one is no child of the test
        ASSERT_TRUE(running()) << log();
        expect_reads_it();
        ASSERT_EQ(stop(), 0);
        EXPECT_FALSE(std::filesystem::exists(dir())) << "the link to the file is removed with the rest";
    }
}

TEST_F(ConfigRestart, TheNextOneReadsTheSameFile) {
    write("user-share = 40\n");
    ASSERT_TRUE(start({"--device", "host:64M", "--config", config()})) << log();
    ASSERT_EQ(run_cli({"create", "a", "--size", "1M"}).exit_code, 0);
    ASSERT_TRUE(take_over()) << log();
    expect_reads_it();
    kill();
    ASSERT_TRUE(start({})) << log();
    expect_reads_it();
    EXPECT_EQ(run_cli({"stat", "a"}).exit_code, 0);
    // Told otherwise.
    const std::string other = scratch() + "/other.toml";
    write_file(other, "user-share = 20\n");
    ASSERT_TRUE(take_over({}, {"GSHM_CONFIG=" + other})) << log();
    write_file(other, "user-share = 21\n");
    EXPECT_EQ(run_cli({"reload"}).out, "user-share: 20 -> 21\n");
    ASSERT_TRUE(take_over({"--config", "none"})) << log();
    EXPECT_EQ(reload("user-share = 33\n"), "nothing has changed\n");
    kill();
    ASSERT_TRUE(start({})) << log();
    EXPECT_EQ(reload("user-share = 34\n"), "nothing has changed\n") << "none is recalled, too";
    ASSERT_TRUE(take_over({"--config", config()})) << log();
    kill();
    ASSERT_TRUE(start({"--device", "host:64M", "--discard"})) << log();
    EXPECT_EQ(reload("user-share = 35\n"), "nothing has changed\n") << "nothing of the earlier gshmd is kept";
}

TEST_F(ConfigRestart, ARecalledFileThatHasGoneIsAnError) {
    write("user-share = 40\n");
    ASSERT_TRUE(start({"--device", "host:64M", "--config", config()})) << log();
    ASSERT_EQ(run_cli({"create", "a", "--size", "1M"}).exit_code, 0);
    ASSERT_EQ(::unlink(config().c_str()), 0);
    const auto gone = run_daemon({"--takeover"});
    EXPECT_EQ(gone.exit_code, 1);
    EXPECT_NE(gone.err.find("cannot find " + config()), std::string::npos) << gone.err;
    EXPECT_NE(gone.err.find("--config none"), std::string::npos) << gone.err;
    EXPECT_TRUE(running());
    EXPECT_EQ(run_cli({"stat", "a"}).exit_code, 0) << "the old one serves";
    kill();
    const auto again = run_daemon({});
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_NE(again.err.find("--config none"), std::string::npos) << again.err;
    write("user-share = oops\n");
    const auto wrong = run_daemon({});
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_NE(wrong.err.find(config() + ":1:"), std::string::npos) << wrong.err;
    ASSERT_TRUE(start({"--config", "none"})) << log();
    EXPECT_EQ(run_cli({"stat", "a"}).exit_code, 0);
}

TEST_F(ConfigRestart, TheRecalledFileDoesNotMoveTheRuntimeFolder) {
    write("user-share = 40\ndir = \"" + scratch() + "/elsewhere\"\n");
    ASSERT_TRUE(start({"--device", "host:64M", "--config", config()})) << log();
    ChildProcess next;
    ASSERT_TRUE(next.spawn({bin("gshmd"), "-f", "--takeover"}, {"GSHM_DIR=" + dir()}));
    EXPECT_EQ(wait_for_end(), 0) << log();
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(scratch() + "/elsewhere"));
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
    EXPECT_EQ(next.wait(std::chrono::seconds(120)), 0);
}

}  // namespace
}  // namespace gshm::core::test
