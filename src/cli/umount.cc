#include <algorithm>
#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/mounts.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// The mount to end; "": all.
std::string choose(Context& context, const UmountArgs& args, const std::vector<MountInfo>& mounts) {
    if (mounts.empty()) {
        const auto daemon = check(context.client().daemon(), {});
        throw Failure(EINVAL, ExitCode::wrong_state,
                      fmt::format("there is nothing to unmount: gshmd (pid {}) has no mount", daemon.pid),
                      "`gshm mount DIR` mounts");
    }
    if (args.path) {
        const std::string path = real_mountpoint(*args.path);
        const bool known = std::ranges::any_of(mounts, [&](const MountInfo& mount) { return path == mount.path; });
        if (known) return path;
        throw Failure(EINVAL, ExitCode::wrong_state, fmt::format("gshmd is not mounted at {}", printable(path)),
                      "`gshm mount` lists its mounts");
    }
    if (args.all) return {};
    if (mounts.size() == 1) return mounts[0].path;
    throw Failure(EINVAL, ExitCode::usage, fmt::format("gshmd has {} mounts", mounts.size()),
                  "`gshm umount DIR` ends one, `gshm umount --all` ends them; `gshm mount` lists them");
}

}  // namespace

int cmd_umount(Context& context, const UmountArgs& args) {
    const auto mounts = context.mounts();
    const std::string path = choose(context, args, mounts);
    // A gshmd with one mount may be too old to be told which.
    const auto done = mounts.size() == 1 || path.empty() ? context.client().unmount(args.lazy)
                                                         : context.client().unmount_at(path, args.lazy);
    if (!done) {
        throw Failure::of_error(done.error(), {},
                                done.error().code == EBUSY ? "close the files, or use `gshm umount --lazy`" : "");
    }
    for (const auto& mount : mounts) {
        if (!path.empty() && path != mount.path) continue;
        if (context.json()) {
            Record record;
            record.add("mountpoint", mount.path);
            context.print(record);
        } else {
            context.print(
                fmt::format("{} is unmounted; gshmd keeps running (`gshm shutdown` ends it)\n", printable(mount.path)));
        }
    }
    return 0;
}

}  // namespace gshm::cli
