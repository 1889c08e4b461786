// Messages of the command that led nowhere: a hint that names the failed command itself, a list that stops at the first
// unreadable directory, a wait that does not follow a link, the same sentence twice.
#include <algorithm>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/daemon_fixture.h"
#include "integration/other_user.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

using Args = std::vector<std::string>;

class CliHints : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override { ASSERT_TRUE(start()) << log(); }

    std::string ok(const Args& args) {
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(args) << '\n' << result.err;
        return result.out;
    }
    static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
    gshm::Client connect() {
        auto client = gshm::Client::connect({.dir = dir(), .timeout = {}});
        EXPECT_TRUE(client);
        return *std::move(client);
    }
};

// Commands of another user.
class CliHintsForOthers : public CliHints {
protected:
    void SetUp() override {
        if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
        CliHints::SetUp();
    }
    RunResult as_nobody(const Args& args) { return run_as_nobody(cli_argv(args)); }
};

TEST_F(CliHintsForOthers, StatShowsTheOwnerOfAForeignObject) {
    ok({"create", "private", "--size", "1"});
    const auto shown = as_nobody({"stat", "private"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_TRUE(has(shown.out, "root (0)")) << shown.out;
    EXPECT_EQ(as_nobody({"attr", "private"}).exit_code, 5);
}

TEST_F(CliHintsForOthers, StatDoesNotSendToItself) {
    ASSERT_TRUE(connect().make_directory("hidden", 0700));
    ok({"create", "hidden/x", "--size", "1"});
    const auto refused = as_nobody({"stat", "hidden/x"});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_FALSE(has(refused.err, "`gshm stat`")) << refused.err;
}

TEST_F(CliHintsForOthers, ARecursiveListGoesOn) {
    ASSERT_TRUE(connect().make_directory("a/hidden", 0700));
    for (const char* name : {"a/hidden/x", "a/y", "a/z/w"}) ok({"create", name, "--size", "1"});
    const auto listed = as_nobody({"ls", "-r", "a"});
    EXPECT_EQ(listed.out, "a/y\na/z/w\n");
    EXPECT_EQ(listed.exit_code, 5);
    EXPECT_TRUE(has(listed.err, "a/hidden")) << listed.err;
    EXPECT_EQ(as_nobody({"ls", "-r"}).out, listed.out);
    const auto json = as_nobody({"--json", "ls", "-r", "a"});
    EXPECT_EQ(nlohmann::json::parse(json.out, nullptr, false)["entries"].size(), 2u) << json.out;
    EXPECT_EQ(as_nobody({"ls", "-r", "a/hidden"}).exit_code, 5);
}

TEST_F(CliHintsForOthers, ShutdownSaysItOnce) {
    const auto refused = as_nobody({"shutdown"});
    EXPECT_EQ(refused.exit_code, 5);
    const size_t first = refused.err.find("only root");
    ASSERT_NE(first, std::string::npos) << refused.err;
    EXPECT_EQ(refused.err.find("only root", first + 1), std::string::npos) << refused.err;
}

TEST_F(CliHints, WaitFollowsALink) {
    ok({"create", "to/x", "--size", "1"});
    ASSERT_TRUE(connect().make_symlink("to/x", "link"));
    ASSERT_TRUE(connect().make_symlink("to/later", "dangling"));
    EXPECT_EQ(run_cli({"wait", "link", "--sealed", "--timeout", "0"}).exit_code, 8);
    ChildProcess to_x, to_later;
    ASSERT_TRUE(to_x.spawn(cli_argv({"wait", "link", "--sealed"})));
    ASSERT_TRUE(to_later.spawn(cli_argv({"wait", "dangling", "--sealed"})));
    ok({"seal", "to/x"});
    EXPECT_EQ(to_x.finish().exit_code, 0);
    ok({"create", "to/later", "--size", "1"});
    EXPECT_TRUE(to_later.running());
    ok({"seal", "to/later"});
    EXPECT_EQ(to_later.finish().exit_code, 0);
    // The link itself exists, whatever its target.
    ASSERT_TRUE(connect().make_symlink("nowhere", "lost"));
    EXPECT_EQ(run_cli({"wait", "lost", "--timeout", "0"}).exit_code, 0);
}

TEST_F(CliHints, UmountWithoutAMount) {
    const auto refused = run_cli({"umount"});
    EXPECT_EQ(refused.exit_code, 9);
    EXPECT_TRUE(has(refused.err, "nothing to unmount")) << refused.err;
    EXPECT_TRUE(has(refused.err, "pid " + std::to_string(pid()))) << refused.err;
}

TEST_F(CliHints, HelpIsACommandToo) {
    EXPECT_EQ(ok({"help"}), ok({"--help"}));
    EXPECT_EQ(ok({"help", "put"}), ok({"put", "--help"}));
    EXPECT_EQ(ok({"help", "help"}), ok({"help", "--help"}));
    const auto refused = run_cli({"help", "frobnicate"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_TRUE(has(refused.err, "unknown command `frobnicate`")) << refused.err;
}

TEST_F(CliHints, ANameWithADashGoesAfterTwo) {
    for (const Args& args : {Args{"put", "file", "-x"}, Args{"put", "-x", "y"}, Args{"get", "x", "-y"},
                             Args{"rm", "-x"}, Args{"stat", "--no-such"}}) {
        const auto refused = run_cli(args);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_TRUE(has(refused.err, "goes after --")) << ::testing::PrintToString(args) << refused.err;
    }
}

}  // namespace
}  // namespace gshm::core::test
