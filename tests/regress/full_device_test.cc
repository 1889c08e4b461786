// `gshm df` counted the limit of gshmd alone: it showed memory as available that other processes of the GPU had. A
// refusal did not say how full the device was, or whose objects it had.
#include <cstdlib>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/other_user.h"
#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

using Args = std::vector<std::string>;

class FullDevice : public ::testing::Test, protected MountFixture {
protected:
    static constexpr uint64_t kMiB = 1 << 20;

    // A GPU of 64 MiB, of which other processes have 50.
    static Args environment() {
        auto all = fake_cuda_env(1);
        all.insert(all.end(), {"FAKECUDA_MEMORY=64M", "FAKECUDA_OTHERS=50M"});
        return all;
    }
    nlohmann::json space() {
        return nlohmann::json::parse(run_cli({"--json", "df"}).out, nullptr, false)["devices"][0];
    }
    static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

TEST_F(FullDevice, OnlyFreeMemoryIsAvailable) {
    ASSERT_TRUE(start({"--device", "cuda:0"}, environment())) << log();
    const auto before = space();
    EXPECT_EQ(before["used_bytes"], 0);
    EXPECT_EQ(before["available_bytes"], 12 * kMiB);  // without the last unit, which drivers do not hand out
    EXPECT_EQ(run_cli({"create", "x", "--size", "12M"}).exit_code, 0);
    const auto after = space();
    EXPECT_EQ(after["used_bytes"], 12 * kMiB);
    EXPECT_EQ(after["available_bytes"], 0);
    EXPECT_EQ(after["size_bytes"], 12 * kMiB);
}

TEST_F(FullDevice, ALimitBelowTheFreeMemoryCounts) {
    ASSERT_TRUE(start({"--device", "cuda:0:8M"}, environment())) << log();
    EXPECT_EQ(run_cli({"create", "x", "--size", "2M"}).exit_code, 0);
    EXPECT_EQ(space()["available_bytes"], 6 * kMiB);
    EXPECT_EQ(space()["size_bytes"], 8 * kMiB);
}

TEST_F(FullDevice, ARefusalSaysHowFullItIs) {
    ASSERT_TRUE(start({"--device", "cuda:0"}, environment())) << log();
    EXPECT_EQ(run_cli({"create", "x", "--size", "12M"}).exit_code, 0);
    const auto refused = run_cli({"create", "y", "--size", "4M"});
    EXPECT_EQ(refused.exit_code, 7);
    EXPECT_TRUE(has(refused.err, "4.0 MiB requested")) << refused.err;
    EXPECT_TRUE(has(refused.err, "gshm has 12 MiB of 64 MiB in use")) << refused.err;
    EXPECT_TRUE(has(refused.err, "the device has 2.0 MiB free, and other processes have 50 MiB")) << refused.err;
}

TEST_F(FullDevice, ARefusalNamesTheUsersToRootAlone) {
    if (const auto missing = missing_for_nobody(); !missing.empty()) GTEST_SKIP() << missing;
    ASSERT_TRUE(start({"--device", "host:16M"})) << log();
    const auto as_nobody = [&](const Args& args) { return run_as_nobody(cli_argv(args)); };
    EXPECT_EQ(run_cli({"create", "x", "--size", "8M"}).exit_code, 0);
    EXPECT_EQ(as_nobody({"create", "y", "--size", "4M"}).exit_code, 0);
    const auto to_root = run_cli({"create", "z", "--size", "8M"});
    EXPECT_EQ(to_root.exit_code, 7);
    EXPECT_TRUE(has(to_root.err, "objects have 12 MiB: uid 0 8.0 MiB, uid 65534 4.0 MiB")) << to_root.err;
    const auto to_other = as_nobody({"create", "z", "--size", "8M"});
    EXPECT_EQ(to_other.exit_code, 7);
    EXPECT_TRUE(has(to_other.err, "objects have 12 MiB, yours 4.0 MiB")) << to_other.err;
    EXPECT_FALSE(has(to_other.err, "uid")) << to_other.err;
}

TEST_F(FullDevice, TheMountHasWhatIsFree) {
    if (auto missing = missing_for(Way::cuda); !missing.empty()) GTEST_SKIP() << missing;
    if (is_real_gpu()) GTEST_SKIP() << "other processes are simulated";
    ::setenv("FAKECUDA_MEMORY", "64M", 1);
    ::setenv("FAKECUDA_OTHERS", "50M", 1);
    ASSERT_TRUE(start_mounted(Way::cuda, {"--device", "cuda:0"})) << log();
    struct statvfs space = {};
    ASSERT_EQ(::statvfs(mount().c_str(), &space), 0);
    EXPECT_EQ(space.f_blocks * space.f_frsize, 64 * kMiB);
    EXPECT_EQ(space.f_bavail * space.f_frsize, 12 * kMiB);
}

}  // namespace
}  // namespace gshm::core::test
