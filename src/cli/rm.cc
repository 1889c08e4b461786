#include <cerrno>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

class Remover {
public:
    Remover(Context& context, const RmArgs& args) : context_(context), args_(args) {}

    void remove(const std::string& given) {
        const auto name = without_trailing_slashes(given);
        if (name.empty() && given.starts_with('/'))
            throw Failure::usage("rm does not remove everything at once", "name the objects; `gshm ls` lists them");
        const auto unlinked = context_.client().unlink(name);
        if (unlinked) {
            removed_.push_back(name);
        } else if (is_directory(name)) {
            remove_directory(name);
        } else if (unlinked.error().code != ENOENT || !args_.force) {
            throw Failure::of_error(unlinked.error(), name);
        }
    }
    std::vector<std::string> take_removed() { return std::move(removed_); }

private:
    bool is_directory(const std::string& name) {
        const auto info = context_.client().stat(name);
        return info && gshm::is_directory(*info);
    }

    // Removes every entry that it may remove, and reports the first failure.
    void remove_directory(const std::string& name) {
        if (!args_.recursive)
            throw Failure(EISDIR, printable(name) + " is a directory", "`gshm rm -r` removes it with all its entries");
        std::optional<Failure> first;
        remove_entries(name, first);
        if (first) throw *first;
    }

    void remove_entries(const std::string& directory, std::optional<Failure>& first) {
        const auto entries = context_.client().list(directory);
        if (!entries) {
            if (entries.error().code != ENOENT && !first) first = Failure::of_error(entries.error(), directory);
            return;
        }
        std::vector<std::string> names;
        for (const auto& [last_part, info] : *entries) {
            auto name = directory + '/' + last_part;
            if (gshm::is_directory(info)) remove_entries(name, first);
            else names.push_back(std::move(name));
        }
        unlink(names, first);
        // A directory that the library made implicitly is removed with its last entry. One that was made through the
        // mount is removed here. If an entry is left, its failure is already recorded.
        (void)context_.client().unlink(directory);
    }

    void unlink(const std::vector<std::string>& names, std::optional<Failure>& first) {
        const auto unlinked = context_.client().unlink_batch(names);
        for (size_t i = 0; i < names.size(); ++i) {
            if (unlinked[i]) removed_.push_back(names[i]);
            else if (unlinked[i].error().code != ENOENT && !first)  // removed meanwhile is fine
                first = Failure::of_error(unlinked[i].error(), names[i]);
        }
    }

    Context& context_;
    const RmArgs& args_;
    std::vector<std::string> removed_;
};

}  // namespace

int cmd_rm(Context& context, const RmArgs& args) {
    Remover remover(context, args);
    const int exit_code = context.for_each(args.names, [&](const std::string& name) { remover.remove(name); });
    if (context.json()) {
        Record record;
        record.add("removed", remover.take_removed());
        context.print(record);
    }
    return exit_code;
}

}  // namespace gshm::cli
