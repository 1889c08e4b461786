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

std::string hint_of(int code) {
    if (code == EBUSY) return "`gshm mount` lists its mounts";
    if (code == ENOENT) return "gshmd needs an existing directory in its own mount namespace";
    if (code == ENOTDIR) return "name a directory";
    return {};
}

}  // namespace

int cmd_mount(Context& context, const MountArgs& args) {
    if (!args.path) {
        if (args.read_only || !args.subdirectory.empty() || !args.source.empty()) {
            throw Failure::usage("--read-only, --subdir and --source go with a DIR to mount at",
                                 "`gshm mount` alone lists the mounts");
        }
        return list(context);
    }
    const std::string path = real_mountpoint(*args.path);
    const MountOptions options{args.read_only, without_trailing_slashes(args.subdirectory), args.source};
    if (const auto done = context.client().mount(path, options); !done) {
        throw Failure::of_error(done.error(), {}, hint_of(done.error().code));
    }
    if (context.json()) {
        for (const auto& mount : context.mounts()) {
            if (path == mount.path) context.print(mount_record(mount));
        }
    } else {
        context.print(fmt::format("mounted at {}; `gshm umount {}` ends it{}\n", printable(path), printable(path),
                                  is_visible_mount(path) ? ""
                                                         : " (only gshmd sees it: this shell has another mount "
                                                           "namespace, as in a container)"));
    }
    return 0;
}

}  // namespace gshm::cli
