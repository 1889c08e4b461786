// gshmd, gshm-keeper and gshm-maker outlive the process that starts gshmd. A pipe, FIFO or lock of that process must not stay
// open in them.
#include "base/fd.h"
#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class InheritedDescriptors : public LibraryTest {
protected:
    void SetUp() override {
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        reader_ = UniqueFd::adopt(ends[0]);
        writer_ = UniqueFd::adopt(ends[1]);
        // High and low numbers: gshmd has descriptors of its own in between.
        for (int least : {3, 200}) left_open_.push_back(UniqueFd::adopt(fcntl(ends[1], F_DUPFD, least)));
    }
    // The end of the pipe, once this process has closed its own descriptors.
    ssize_t read_rest() {
        writer_.reset();
        left_open_.clear();
        char byte = 0;
        return ::read(reader_.get(), &byte, 1);
    }

    UniqueFd reader_;
    UniqueFd writer_;
    std::vector<UniqueFd> left_open_;
};

TEST_F(InheritedDescriptors, AreClosedByADaemonInTheForeground) {
    start_all();  // with gshm-maker
    EXPECT_EQ(read_rest(), 0);
    EXPECT_TRUE(running());
    EXPECT_GT(keeper_pid(), 0);
}

TEST_F(InheritedDescriptors, AreClosedByADaemonInTheBackground) {
    ChildProcess starter;
    ASSERT_TRUE(starter.spawn({bin("gshmd"), "--dir", dir(), "--device", "host:64M"}));
    EXPECT_EQ(starter.finish().exit_code, 0);
    EXPECT_EQ(read_rest(), 0);
    EXPECT_EQ(run_cli({"ping"}).exit_code, 0);
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
}

}  // namespace
}  // namespace gshm::core::test
