// `gshm rm -r` left names that are not UTF-8, which only the mount makes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

class OddNames : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::through); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(start_mounted(Way::through)) << log();
    }
};

TEST_F(OddNames, AreRemoved) {
    ASSERT_EQ(mkdir(at("d").c_str(), 0755), 0);
    ASSERT_EQ(mkdir(at("d/sub\xff").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("d/sub\xff/file\xfe"), "x"));
    ASSERT_TRUE(write_file(at("d/\xc3"), "x"));
    ASSERT_TRUE(write_file(at("top\xff"), "x"));
    EXPECT_EQ(run_cli({"ls", "-r", "d"}).out, "d/sub\xff/file\xfe\nd/\xc3\n");
    const auto removed = run_cli({"rm", "-r", "d", "top\xff"});
    EXPECT_EQ(removed.exit_code, 0) << removed.err;
    EXPECT_EQ(run_cli({"ls"}).out, "");
}

TEST_F(OddNames, AreNotMadeByTheLibrary) {
    const auto made = run_cli({"create", "x\xff", "--size", "1"});
    EXPECT_EQ(made.exit_code, 2);
    EXPECT_NE(made.err.find("UTF-8"), std::string::npos) << made.err;
    ASSERT_TRUE(write_file(at("y"), "x"));
    EXPECT_EQ(run_cli({"mv", "y", "y\xff"}).exit_code, 2);
}

}  // namespace
}  // namespace gshm::core::test
