// A keeper whose daemon was killed and whose runtime folder was removed held its memory forever, since no process could
// reach it.
#include <poll.h>
#include <sys/syscall.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class OrphanedKeeper : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:64M"})) << log();
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

TEST_F(OrphanedKeeper, IsListedByDoctor) {
    kill();
    auto result = run_cli({"doctor", "--json"});
    EXPECT_NE(result.out.find("\"keepers\""), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(dir()), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(std::to_string(keeper_)), std::string::npos) << result.out;
}

}  // namespace
}  // namespace gshm::core::test
