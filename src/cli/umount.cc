#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {

int cmd_umount(Context& context, const UmountArgs& args) {
    auto info = sized<gshm_daemon_info>();
    check(gshm_daemon(context.client(), &info), {});
    const std::string path = info.mountpoint;
    if (path.empty()) throw Failure(EINVAL, "gshmd has no mount", "start it with one: gshmd MOUNTPOINT");
    if (const int status = gshm_unmount(context.client(), args.lazy ? uint32_t{GSHM_LAZY} : 0u); status < 0) {
        throw Failure::of_status(status, {}, status == -EBUSY ? "close the files, or use `gshm umount --lazy`" : "");
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
