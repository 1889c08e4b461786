#include <cerrno>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/tensors.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// Loaded files only: other objects in a directory stay, also checkpoints.
std::vector<std::string> find_loaded(Context& context, const std::string& name) {
    if (!is_directory(context.stat(name))) {
        if (!is_loaded(context, name))
            throw Failure(EINVAL, ExitCode::wrong_state, printable(name) + " is not a loaded file",
                          "`gshm rm` removes it");
        return {name};
    }
    std::vector<std::string> names;
    for (const auto& [below, info] : check(context.client().list(name, true), name)) {
        auto whole = name + '/' + below;
        if (info.kind == GSHM_KIND_OBJECT && is_loaded(context, whole)) names.push_back(std::move(whole));
    }
    if (names.empty()) throw Failure(ENOENT, "nothing is loaded in " + printable(name));
    return names;
}

}  // namespace

int cmd_unload(Context& context, const NamesArgs& args) {
    std::vector<std::string> removed;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto names = find_loaded(context, without_trailing_slashes(given));
        const auto unlinked = context.client().unlink_batch(names);
        for (size_t i = 0; i < names.size(); ++i) {
            if (unlinked[i]) removed.push_back(names[i]);
            else if (unlinked[i].error().code != ENOENT) throw Failure::of_error(unlinked[i].error(), names[i]);
        }
    });
    if (context.json()) {
        Record record;
        record.add("removed", removed);
        context.print(record);
    }
    return exit_code;
}

}  // namespace gshm::cli
