#include <cerrno>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/text.h"

namespace gshm::cli {

int cmd_wait(Context& context, const WaitArgs& args) {
    const auto condition = args.gone ? WaitFor::kGone : args.sealed ? WaitFor::kSealed : WaitFor::kExists;
    std::optional<std::chrono::milliseconds> timeout;
    if (args.timeout_ms >= 0) timeout = std::chrono::milliseconds(args.timeout_ms);
    auto waited = context.client().wait(args.name, condition, timeout);
    if (!waited && waited.error().code == ETIMEDOUT)
        throw Failure(ETIMEDOUT, fmt::format("{} {} within {:g} s", printable(args.name),
                                             args.gone     ? "did not go"
                                             : args.sealed ? "was not there and sealed"
                                                           : "did not appear",
                                             args.timeout_ms / 1000.0));
    const auto info = check(std::move(waited), args.name);
    if (!context.json()) return 0;
    if (args.gone && info.id == 0) context.print(Record().add("name", args.name).add("kind", "none"));
    else context.print(stat_record(args.name, info));
    return 0;
}

}  // namespace gshm::cli
