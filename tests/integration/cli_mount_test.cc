// What `gshm mount` and a gshm without a daemon say when something is missing.
#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include "integration/other_user.h"

namespace gshm::core::test {
namespace {

class CliMount : public ::testing::Test, protected DaemonFixture {};

TEST_F(CliMount, OptionsNeedADirectory) {
    ASSERT_TRUE(start()) << log();
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{"--read-only"}, {"--subdir", "a"}, {"--source", "x"}}) {
        std::vector<std::string> args = {"mount"};
        args.insert(args.end(), options.begin(), options.end());
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, 2) << options[0];
        EXPECT_NE(result.err.find("go with a DIR"), std::string::npos) << result.err;
    }
    EXPECT_EQ(run_cli({"mount"}).exit_code, 0);
}

TEST_F(CliMount, AMissingDirectoryIsNoMissingObject) {
    ASSERT_TRUE(start()) << log();
    const auto result = run_cli({"mount", scratch() + "/nosuchdir"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_NE(result.err.find("an existing directory"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("gshm ls"), std::string::npos) << result.err;
}

TEST_F(CliMount, SaysThatAnotherNamespaceDoesNotSeeIt) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, for a mount namespace";
    if (::access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "needs /dev/fuse";
    ASSERT_TRUE(start()) << log();
    const std::string place = scratch() + "/mount";
    std::filesystem::create_directory(place);
    auto mount = [&](std::vector<std::string> command) {
        const auto argv = cli_argv({"mount", place});
        command.insert(command.end(), argv.begin(), argv.end());
        ChildProcess child;
        EXPECT_TRUE(child.spawn(command));
        return child.finish();
    };
    const auto outside = mount({"/usr/bin/unshare", "--mount", "--propagation", "private"});
    ASSERT_EQ(outside.exit_code, 0) << outside.err;
    EXPECT_NE(outside.out.find("another mount namespace"), std::string::npos) << outside.out;
    ASSERT_EQ(run_cli({"umount", place}).exit_code, 0);
    const auto inside = mount({});
    ASSERT_EQ(inside.exit_code, 0) << inside.err;
    EXPECT_EQ(inside.out.find("namespace"), std::string::npos) << inside.out;
    ASSERT_EQ(run_cli({"umount", place}).exit_code, 0);
}

TEST_F(CliMount, AnOrdinaryUserWithoutTheDeviceFileGetsARemedy) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    struct stat device = {};
    if (::stat("/dev/fuse", &device) != 0 || (device.st_mode & 06) == 06)
        GTEST_SKIP() << "needs a /dev/fuse that is for root only";
    if (::access("/usr/bin/fusermount3", X_OK) != 0) GTEST_SKIP() << "needs fusermount3";
    const std::string own = scratch() + "/own";
    std::filesystem::create_directories(own + "/mnt");
    ASSERT_EQ(::chown(own.c_str(), 65534, 65534), 0);
    ASSERT_EQ(::chown((own + "/mnt").c_str(), 65534, 65534), 0);
    const auto result =
        run_as_nobody({bin("gshmd"), "--dir", own + "/run", "--config", "none", "--device", "host:16M", own + "/mnt"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("`chmod 666 /dev/fuse` by root"), std::string::npos) << result.err;
}

TEST_F(CliMount, WithoutARuntimeFolderTheHintHelps) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    const auto result = run_as_nobody({"/usr/bin/env", "-i", bin("gshm"), "ls"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find("XDG_RUNTIME_DIR"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("/run/gshm"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("start it with"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace gshm::core::test
