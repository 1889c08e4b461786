#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/mounts.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

int list(Context& context) {
    const auto mounts = context.mounts();
    Table table({"SOURCE", "MOUNTPOINT", "SUBDIRECTORY", "MODE"});
    for (const auto& mount : mounts) {
        table.add_row({printable(mount.source), printable(mount.path), printable(mount.subdirectory),
                       (mount.flags & GSHM_MOUNT_READ_ONLY) != 0 ? "ro" : "rw"});
    }
    if (context.json()) {
        Record record;
        record.add("mounts", mount_records(mounts));
        context.print(record);
    } else {
        context.print(table.text());
    }
    return 0;
}

}  // namespace

int cmd_mount(Context& context, const MountArgs& args) {
    if (!args.path) return list(context);
    const std::string path = real_mountpoint(*args.path);
    const MountOptions options{args.read_only, without_trailing_slashes(args.subdirectory), args.source};
    if (const auto done = context.client().mount(path, options); !done) {
        throw Failure::of_error(done.error(), {}, done.error().code == EBUSY ? "`gshm mount` lists its mounts" : "");
    }
    if (context.json()) {
        for (const auto& mount : context.mounts()) {
            if (path == mount.path) context.print(mount_record(mount));
        }
    } else {
        context.print(fmt::format("mounted at {}; `gshm umount {}` ends it\n", printable(path), printable(path)));
    }
    return 0;
}

}  // namespace gshm::cli
