// What the metrics call stalled: processes that are stopped, or dead but not gone.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "daemon/process.h"

namespace gshm::core {
namespace {

TEST(ProcessState, OfStoppedAndDeadOnes) {
    EXPECT_EQ(process_state(getpid()), ProcessState::living);
    EXPECT_FALSE(is_stopped(getpid()));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        for (;;) pause();
    }
    ASSERT_EQ(kill(child, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    EXPECT_TRUE(is_stopped(child));
    EXPECT_EQ(process_state(child), ProcessState::living);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    siginfo_t ended = {};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(process_state(child), ProcessState::dying) << "its parent has not waited for it";
    EXPECT_FALSE(is_stopped(child));
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(process_state(child), ProcessState::gone);
    EXPECT_FALSE(is_stopped(child));
}

}  // namespace
}  // namespace gshm::core
