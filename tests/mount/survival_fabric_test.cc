// Fabric handles end with the process that made the memory: after a restart the file gets new memory, and a new handle.
#include <sys/xattr.h>

#include <gtest/gtest.h>

#include "mount/mount_fixture.h"

namespace gshm::test {
namespace {

class MountSurvivalOfHandles : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::cuda); !missing.empty()) GTEST_SKIP() << missing;
    }
    std::string handle_of(const std::string& path) {
        std::string value(64, '\0');
        ssize_t length = getxattr(path.c_str(), "user.fabric_handle", value.data(), value.size());
        return length == 64 ? value : std::string();
    }
};

TEST_F(MountSurvivalOfHandles, AFabricHandleIsMadeAnew) {
    ASSERT_TRUE(start_mounted(Way::cuda)) << log();
    const std::string bytes(3 << 20, 'x');
    ASSERT_TRUE(write_file(at("f"), bytes));
    const std::string before = handle_of(at("f"));
    if (before.empty() && errno == EOPNOTSUPP) GTEST_SKIP() << "this GPU has no fabric handles";
    ASSERT_FALSE(before.empty()) << strerror(errno);
    kill();
    ASSERT_TRUE(start_mounted(Way::cuda)) << log();
    const std::string after = handle_of(at("f"));
    ASSERT_FALSE(after.empty()) << strerror(errno);
    EXPECT_NE(after, before);
    EXPECT_EQ(handle_of(at("f")), after) << "once is enough";
    EXPECT_EQ(read_file(at("f")), bytes);
    EXPECT_EQ(stop(), 0);
}

// What the kernel has never heard of it does not forget: such nodes stayed for ever, one daemon after the other.
TEST_F(MountSurvivalOfHandles, RemovedObjectsLeaveNothingBehind) {
    ASSERT_TRUE(start_mounted(Way::passthrough)) << log();
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 5; ++i) {
            ASSERT_EQ(run_cli({"create", "o" + std::to_string(i), "--size", "4K"}).exit_code, 0);
        }
        ASSERT_TRUE(write_file(at("looked_at"), "x"));
        kill();
        ASSERT_TRUE(start_mounted(Way::passthrough)) << log();
        for (int i = 0; i < 5; ++i) ASSERT_EQ(run_cli({"rm", "o" + std::to_string(i)}).exit_code, 0);
        ASSERT_EQ(unlink(at("looked_at").c_str()), 0);
        std::string said;
        for (int looks = 0; looks < 2000 && said.find("\"objects\": 0") == std::string::npos; ++looks) {
            said = run_cli({"ping", "--json"}).out;
        }
        EXPECT_NE(said.find("\"objects\": 0"), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace gshm::test
