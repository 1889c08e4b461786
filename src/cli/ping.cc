#include <chrono>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/mounts.h"

namespace gshm::cli {

int cmd_ping(Context& context) {
    const auto& client = context.client();
    const auto begin = std::chrono::steady_clock::now();
    check(client.ping(), {});
    const std::chrono::duration<double, std::micro> round_trip = std::chrono::steady_clock::now() - begin;
    const auto info = check(client.daemon(), {});

    if (context.json()) {
        Record record;
        record.add("dir", context.dir())
            .add("pid", info.pid)
            .add("version", info.version)
            .add("protocol", info.protocol)
            .add("instance", fmt::format("{:016x}", info.instance))
            .add("sessions", info.sessions)
            .add("objects", info.objects)
            .add("extents", info.extents)
            .add("keeper_pid", info.keeper)
            .add("round_trip_us", round_trip.count())
            .add("mounts", mount_records(context.mounts()));
        context.print(record);
    } else {
        context.print(fmt::format("gshmd {} (pid {}) at {}: {} objects in {} extents, {} sessions, {:.0f} us\n",
                                  info.version, info.pid, context.dir(), info.objects, info.extents, info.sessions,
                                  round_trip.count()));
    }
    return 0;
}

}  // namespace gshm::cli
