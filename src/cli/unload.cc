#include <algorithm>
#include <cerrno>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/tensors.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr size_t kSelectionDigits = 12;

// The name of a load, or with the endings that it adds: "@DEVICE", and "+" with a hash of the selection.
bool is_of_load(std::string_view name, std::string_view load) {
    if (!name.starts_with(load)) return false;
    name.remove_prefix(load.size());
    if (name.starts_with('@')) name.remove_prefix(std::min(name.find('+'), name.size()));
    if (name.empty()) return true;
    return name[0] == '+' && name.size() == 1 + kSelectionDigits &&
           name.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

// The objects of a file: on all devices, and all selections.
std::vector<std::string> find_of_file(Context& context, const std::string& name) {
    const auto info = context.client().stat(name);
    if (info && !is_loaded(context, name))
        throw Failure(EINVAL, ExitCode::wrong_state, printable(name) + " is not a loaded file", "`gshm rm` removes it");
    std::vector<std::string> names;
    if (info) names.push_back(name);
    const size_t slash = name.rfind('/');
    const auto above = slash == std::string::npos ? "" : name.substr(0, slash);
    const auto last = slash == std::string::npos ? name : name.substr(slash + 1);
    const auto entries = context.client().list(above, false);
    for (size_t i = 0; entries && i < entries->size(); ++i) {
        const auto& [entry, found] = (*entries)[i];
        auto whole = above.empty() ? entry : above + '/' + entry;
        if (entry == last || found.kind != GSHM_KIND_OBJECT || !is_of_load(entry, last)) continue;
        if (is_loaded(context, whole)) names.push_back(std::move(whole));
    }
    if (!names.empty()) return names;
    // Users take the path of the file for the name.
    if (::access(name.c_str(), F_OK) == 0)
        throw Failure(
            ENOENT, "nothing is loaded as " + printable(name),
            fmt::format("the name is the one that `gshm load` has printed; without a name given it is below loaded-{}",
                        ::geteuid()));
    throw Failure::of_error(info.error(), name);
}

// Loaded files only: other objects in a directory stay, also checkpoints.
std::vector<std::string> find_loaded(Context& context, const std::string& name) {
    const auto there = context.client().stat(name);
    if (!there || !is_directory(*there)) return find_of_file(context, name);
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
