#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {
namespace {

// As mv(1): into a directory, under the old last part.
std::string target_of(Context& context, const std::string& from, const std::string& to) {
    if (to.empty()) return to;  // a mistake, and not the root
    const auto path = without_trailing_slashes(to);
    bool directory = path != to;
    if (!directory) {
        const auto info = context.client().stat(path);
        directory = info && is_directory(*info);
    }
    if (!directory) return to;
    const auto last_part = from.substr(from.rfind('/') + 1);
    return path.empty() ? last_part : path + '/' + last_part;
}

}  // namespace

int cmd_mv(Context& context, const MvArgs& args) {
    const auto from = without_trailing_slashes(args.from);
    const auto to = target_of(context, from, args.to);
    check(context.client().rename(from, to, !args.no_replace), from);
    if (context.json()) {
        Record record;
        record.add("from", from).add("to", to);
        context.print(record);
    }
    return 0;
}

}  // namespace gshm::cli
