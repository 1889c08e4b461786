// `gshm shutdown` said that gshmd had ended when it only answered no more: its process, and so its memory on a GPU, was
// still there.
#include <sys/syscall.h>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include "support/stopped_thread.h"

namespace gshm::core::test {
namespace {

bool sleeps_in_poll(pid_t process) {
    const long number = SleepingCall::of(process, process).number;
#ifdef SYS_poll
    if (number == SYS_poll) return true;
#endif
    return number == SYS_ppoll;
}

TEST(ShutdownEnd, IsTheEndOfTheProcess) {
    DaemonFixture daemon;
    // LeakSanitizer cannot look for leaks in a traced process.
    ASSERT_TRUE(daemon.start({"--device", "host:256M"}, {"LSAN_OPTIONS=detect_leaks=0"})) << daemon.log();
    StoppedThread main(daemon.pid());
    if (main.has_failed()) GTEST_SKIP() << "needs ptrace: " << main.error();
    ChildProcess command;
    ASSERT_TRUE(command.spawn(daemon.cli_argv({"shutdown"})));
    ASSERT_TRUE(main.run_until_call(SYS_exit_group));
    EXPECT_EQ(daemon.run_cli({"ping"}).exit_code, 3);  // it answers no more
    while (command.running() && !sleeps_in_poll(command.pid())) std::this_thread::yield();
    EXPECT_TRUE(command.running());
    main.resume();
    const auto result = command.finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("has ended"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace gshm::core::test
