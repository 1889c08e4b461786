// Objects that are removed after a restart.
#include <gtest/gtest.h>

#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

class MountSurvivalOfRemoved : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
    }
};

// The kernel sends no FORGET for nodes that it never knew: such nodes stayed for ever, from daemon to daemon.
TEST_F(MountSurvivalOfRemoved, RemovedObjectsLeaveNothingBehind) {
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
}  // namespace gshm::core::test
