#include <cerrno>

#include "commands.h"
#include "context.h"
#include "text.h"

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
        gshm_listing* handle = nullptr;
        check(gshm_list(context_.client(), name.c_str(), GSHM_RECURSIVE, &handle), name);
        const Listing listing(handle);
        std::vector<std::string> inside;
        for (size_t i = 0; i < gshm_listing_count(handle); ++i)
            inside.push_back(name + '/' + gshm_listing_name(handle, i));
        std::optional<Failure> first;
        for (const auto& object : inside) {
            const int status = gshm_unlink(context_.client(), object.c_str());
            if (status == 0)
                removed_.push_back(object);
            else if (status != -ENOENT && !first)  // gone meanwhile is as good
                first = Failure::of_status(status, object);
        }
        if (first) throw *first;
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
