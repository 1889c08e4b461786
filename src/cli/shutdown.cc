#include <cerrno>
#include <chrono>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {
namespace {

// Not open if the process cannot be seen from here: gshmd may run in another PID namespace, where its PID means another
// process.
UniqueFd open_daemon(pid_t pid) {
    std::string program;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), program);
    if (program != "gshmd") return {};
    return UniqueFd::adopt(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

// Returns when the daemon's process has ended, so that its memory is free and the next command can start another one.
int cmd_shutdown(Context& context, const ShutdownArgs& args) {
    using namespace std::chrono;
    // The driver takes seconds to end a process with much memory.
    constexpr auto kPatience = 60s;

    const auto info = check(context.client().daemon(), {});
    const auto process = open_daemon(info.pid);
    check(context.client().shutdown(args.keep), {});
    context.disconnect();
    const auto deadline = steady_clock::now() + kPatience;
    const auto is_late = [&](const char* state) {
        if (steady_clock::now() < deadline) return;
        throw Failure(ETIMEDOUT, fmt::format("gshmd (pid {}) was asked to end and {}", info.pid, state),
                      fmt::format("see its log, or end it with `kill {}`", info.pid));
    };
    while (context.daemon_answers()) {
        is_late("still answers");
        std::this_thread::sleep_for(10ms);
    }
    pollfd end{process.get(), POLLIN, 0};
    while (process && ::poll(&end, 1, static_cast<int>(duration_cast<milliseconds>(kPatience).count())) <= 0)
        is_late("has not ended yet");
    if (context.json()) {
        Record record;
        record.add("dir", context.dir()).add("pid", info.pid).add("kept", args.keep);
        context.print(record);
    } else {
        context.print(fmt::format("gshmd (pid {}) {}{}\n", info.pid, process ? "has ended" : "answers no more",
                                  args.keep ? "; its objects are kept for the next one" : ""));
    }
    return 0;
}

}  // namespace gshm::cli
