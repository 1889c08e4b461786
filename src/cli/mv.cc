#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {
namespace {

// Follows mv(1): into an existing directory under the last part of the old name.
std::string target_of(Context& context, const std::string& from, const std::string& to) {
    if (to.empty()) return to;  // invalid; not the root directory
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

int move_to_device(Context& context, const MvArgs& args) {
    if (args.to || args.no_replace) throw Failure::usage("mv --device takes one NAME: rename it with another mv");
    check(context.client().move(args.from, args.device, args.keep_holders), args.from);
    if (context.json()) {
        Record record;
        record.add("name", args.from).add("device", args.device);
        context.print(record);
    }
    return 0;
}

}  // namespace

int cmd_mv(Context& context, const MvArgs& args) {
    if (!args.device.empty()) return move_to_device(context, args);
    if (!args.to) throw Failure::usage("mv takes OLD and NEW, or --device DEVICE and a NAME");
    if (args.keep_holders) throw Failure::usage("--keep-holders goes with --device");
    const auto from = without_trailing_slashes(args.from);
    const auto to = target_of(context, from, *args.to);
    check(context.client().rename(from, to, !args.no_replace), from);
    if (context.json()) {
        Record record;
        record.add("from", from).add("to", to);
        context.print(record);
    }
    return 0;
}

}  // namespace gshm::cli
