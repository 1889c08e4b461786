#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {

int cmd_umount(Context& context, const UmountArgs& args) {
    const std::string path = check(context.client().daemon(), {}).mountpoint;
    if (path.empty()) throw Failure(EINVAL, "gshmd has no mount", "start it with one: gshmd MOUNTPOINT");
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
