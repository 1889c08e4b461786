// What `gshm` says when it cannot reach the gshmd that is meant.
#include <filesystem>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include "integration/other_user.h"

namespace gshm::core::test {
namespace {

class CliHints : public ::testing::Test, protected DaemonFixture {};

TEST_F(CliHints, TheGshmdOfRootIsNamed) {
    // A namespace of its own has a /run with nothing but the socket of a gshmd.
    const std::string prepare = "mount -t tmpfs none /run && mkdir /run/gshm && : >/run/gshm/gshm.sock";
    const std::vector<std::string> unshare = {"/usr/bin/unshare", "--mount", "--map-root-user", "sh", "-c"};
    const auto run = [&](const std::string& command) {
        auto argv = unshare;
        argv.push_back(command);
        ChildProcess child;
        EXPECT_TRUE(child.spawn(argv, {"GSHM_DIR=" + scratch() + "/none"}));
        return child.finish();
    };
    if (run(prepare).exit_code != 0) GTEST_SKIP() << "needs mount namespaces";
    const auto result = run(prepare + " && exec " + bin("gshm") + " ls");
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.err, "gshm: gshmd is not running at " + scratch() +
                              "/none; start it with `gshmd`, or use the one at /run/gshm (--dir, GSHM_DIR)\n");
}

TEST_F(CliHints, AFolderOfAGroupIsForItsMembers) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    ASSERT_TRUE(start()) << log();
    ASSERT_EQ(::chmod(scratch().c_str(), 0755), 0);
    const auto message = [&](mode_t mode) {
        EXPECT_EQ(::chmod(dir().c_str(), mode), 0);
        const auto result = run_as_nobody({bin("gshm"), "--dir", dir(), "ls"});
        EXPECT_EQ(result.exit_code, 5) << result.err;
        return result.err;
    };
    const auto group = message(0750);
    EXPECT_NE(group.find("; only members of its group may use it (`ls -ld " + dir() + "`)\n"), group.npos) << group;
    const auto owner = message(0700);
    EXPECT_NE(owner.find("; only its owner and root may use it (`ls -ld " + dir() + "`)\n"), owner.npos) << owner;
}

}  // namespace
}  // namespace gshm::core::test
