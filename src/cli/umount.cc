#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {

int cmd_umount(Context& context, const UmountArgs& args) {
    const auto daemon = check(context.client().daemon(), {});
    const std::string path = daemon.mountpoint;
    if (path.empty())
        throw Failure(EINVAL, ExitCode::wrong_state,
                      fmt::format("there is nothing to unmount: gshmd (pid {}) has no mount", daemon.pid),
                      "`gshmd MOUNTPOINT` mounts when it starts");
    if (const auto done = context.client().unmount(args.lazy); !done) {
        throw Failure::of_error(done.error(), {},
                                done.error().code == EBUSY ? "close the files, or use `gshm umount --lazy`" : "");
    }
    if (context.json()) {
        Record record;
        record.add("mountpoint", path);
        context.print(record);
    } else {
        context.print(fmt::format("{} is unmounted; gshmd goes on (end it with `gshm shutdown`)\n", path));
    }
    return 0;
}

}  // namespace gshm::cli
