// A signal that arrived after `gshm get` had renamed its file, while the command was about to end, ended it as if the
// copy were missing: the exit status and the file did not agree.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include "support/stopped_thread.h"

namespace gshm::core::test {
namespace {

// At the beginning and the end of every system call of its main thread after the rename.
TEST(LateSignal, DoesNotChangeTheExitStatusOfACompleteGet) {
    constexpr uint64_t kBytes = 4096;
    DaemonFixture daemon;
    ASSERT_TRUE(daemon.start()) << daemon.log();
    ASSERT_EQ(daemon.run_cli({"create", "x", "--size", "4096"}).exit_code, 0);
    const auto file = daemon.scratch() + "/out";
    bool ended = false;
    for (int stops = 0; !ended && !HasFailure(); ++stops) {
        std::ofstream(file) << "old";
        ChildProcess command;
        // LeakSanitizer cannot look for leaks in a traced process.
        ASSERT_TRUE(command.spawn(daemon.cli_argv({"get", "x", file}), {"LSAN_OPTIONS=detect_leaks=0"}));
        StoppedThread main(command.pid());
        if (main.has_failed()) GTEST_SKIP() << "needs ptrace: " << main.error();
        while (std::filesystem::file_size(file) != kBytes) ASSERT_TRUE(main.run_until_edge());
        for (int i = 0; i < stops && !ended; ++i) ended = !main.run_until_edge() || main.next_call() == SYS_exit_group;
        ::kill(command.pid(), SIGTERM);
        main.resume();
        EXPECT_EQ(command.finish().exit_code, 0) << "at stop " << stops;
    }
}

}  // namespace
}  // namespace gshm::core::test
