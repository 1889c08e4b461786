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
            throw Failure::usage("rm does not remove everything at once", "name what to remove; `gshm ls` lists it");
        const int status = gshm_unlink(context_.client(), name.c_str());
        if (status == 0) {
            removed_.push_back(name);
        } else {
            const auto failure = Failure::of_status(status, name);  // before further calls replace the sentence
            if (is_directory(name))
                remove_directory(name);
            else if (status != -ENOENT || !args_.force)
                throw failure;
        }
    }
    std::vector<std::string> take_removed() { return std::move(removed_); }

private:
    bool is_directory(const std::string& name) {
        auto info = sized<gshm_stat_info>();
        return gshm_stat(context_.client(), name.c_str(), &info) == 0 && info.kind == GSHM_KIND_DIRECTORY;
    }

    // Everything that may be removed goes; the first that may not is the failure.
    void remove_directory(const std::string& name) {
        if (!args_.recursive)
            throw Failure(EISDIR, printable(name) + " is a directory",
                          "`gshm rm -r` removes it with all that is in it");
        std::optional<Failure> first;
        remove_entries(name, first);
        if (first) throw *first;
    }

    void remove_entries(const std::string& directory, std::optional<Failure>& first) {
        gshm_listing* handle = nullptr;
        if (const int status = gshm_list(context_.client(), directory.c_str(), 0, &handle); status < 0) {
            if (status != -ENOENT && !first) first = Failure::of_status(status, directory);
            return;
        }
        const Listing listing(handle);
        for (size_t i = 0; i < gshm_listing_count(handle); ++i) {
            auto info = sized<gshm_stat_info>();
            const auto name = directory + '/' + gshm_listing_name(handle, i);
            if (gshm_listing_stat(handle, i, &info) == 0 && info.kind == GSHM_KIND_DIRECTORY)
                remove_entries(name, first);
            else
                unlink(name, first);
        }
        // One that the library made went with its last entry; one that the mount made stays until now.
        // Whatever keeps it was a failure already.
        (void)gshm_unlink(context_.client(), directory.c_str());
    }

    void unlink(const std::string& name, std::optional<Failure>& first) {
        const int status = gshm_unlink(context_.client(), name.c_str());
        if (status == 0)
            removed_.push_back(name);
        else if (status != -ENOENT && !first)  // gone meanwhile is as good
            first = Failure::of_status(status, name);
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
