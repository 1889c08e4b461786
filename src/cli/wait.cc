#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/text.h"

namespace gshm::cli {

int cmd_wait(Context& context, const WaitArgs& args) {
    auto info = sized<gshm_stat_info>();
    const int condition = args.gone ? GSHM_WAIT_GONE : args.sealed ? GSHM_WAIT_SEALED : GSHM_WAIT_EXISTS;
    const int status = gshm_wait(context.client(), args.name.c_str(), condition, args.timeout_ms, &info);
    if (status == -ETIMEDOUT)
        throw Failure(ETIMEDOUT, fmt::format("{} {} within {:g} s", printable(args.name),
                                             args.gone     ? "did not go"
                                             : args.sealed ? "was not there and sealed"
                                                           : "did not appear",
                                             args.timeout_ms / 1000.0));
    check(status, args.name);
    if (!context.json()) return 0;
    if (args.gone && info.id == 0) context.print(Record().add("name", args.name).add("kind", "none"));
    else context.print(stat_record(args.name, info));
    return 0;
}

}  // namespace gshm::cli
