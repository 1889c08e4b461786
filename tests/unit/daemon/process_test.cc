// What the metrics call stalled: processes that are stopped, or dead but not gone.
#include <csignal>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
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

char state_of_main_thread(pid_t pid) {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
    const size_t name_end = line.rfind(')');
    return name_end == std::string::npos ? '\0' : line.at(name_end + 2);
}

TEST(ProcessState, OfOneWhoseMainThreadHasEnded) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::thread([] {
            for (;;) pause();
        }).detach();
        syscall(SYS_exit, 0);  // of this thread alone
    }
    while (state_of_main_thread(child) != 'Z') sched_yield();
    EXPECT_EQ(process_state(child), ProcessState::living);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    siginfo_t ended = {};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(process_state(child), ProcessState::dying);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace gshm::core
