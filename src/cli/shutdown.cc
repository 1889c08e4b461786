#include <cerrno>
#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {

// Returns when the daemon accepts no connections any more, so that the next command can start another one.
int cmd_shutdown(Context& context, const ShutdownArgs& args) {
    using namespace std::chrono_literals;
    constexpr auto kPatience = 10s;

    const auto info = check(context.client().daemon(), {});
    if (const auto asked = context.client().shutdown(args.keep); !asked) {
        const bool rights = asked.error().code == EPERM || asked.error().code == EACCES;
        throw Failure::of_error(asked.error(), {}, rights ? "only root and the daemon's own user may end it" : "");
    }
    context.disconnect();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (context.daemon_answers()) {
        if (std::chrono::steady_clock::now() >= deadline)
            throw Failure(ETIMEDOUT, fmt::format("gshmd (pid {}) was asked to end and still answers", info.pid),
                          fmt::format("see its log, or end it with `kill {}`", info.pid));
        std::this_thread::sleep_for(10ms);
    }
    if (context.json()) {
        Record record;
        record.add("dir", context.dir()).add("pid", info.pid).add("kept", args.keep);
        context.print(record);
    } else {
        context.print(fmt::format("gshmd (pid {}) has ended{}\n", info.pid,
                                  args.keep ? "; its objects are kept for the next one" : ""));
    }
    return 0;
}

}  // namespace gshm::cli
