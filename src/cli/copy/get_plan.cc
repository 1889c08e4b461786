#include "cli/copy/get_plan.h"

#include <cerrno>
#include <sys/stat.h>

#include <fmt/core.h>

#include "cli/copy/put_plan.h"
#include "cli/copy/targets.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

class Planner {
public:
    Planner(Context& context, const GetArgs& args, Complaints& complaints)
        : context_(context), args_(args), complaints_(complaints) {}

    GetPlan plan() {
        const auto& all = args_.names_and_file;
        const std::vector<std::string> names(all.begin(), all.end() - 1);
        target_ = all.back();
        if (target_.empty()) throw Failure::usage("the file's name is empty");
        struct stat info{};
        const auto plain = without_trailing_slashes(target_);
        const bool exists = ::stat(plain.empty() ? "/" : plain.c_str(), &info) == 0;
        const bool wants_folder = names.size() > 1 || target_.ends_with('/');
        if (exists && wants_folder && !S_ISDIR(info.st_mode))
            throw Failure(ENOTDIR, fmt::format("{} is not a directory", printable(target_)));
        into_ = wants_folder || (exists && S_ISDIR(info.st_mode));
        if (into_ && !exists) plan_.folders.push_back(target_);
        for (const auto& name : names) complaints_.guard([&] { add_named(without_trailing_slashes(name)); });
        plan_.single = names.size() == 1 && !directories_;
        // A get that fails for every name does not create the folder.
        if (plan_.items.empty() && !directories_) plan_.folders.clear();
        return std::move(plan_);
    }

private:
    std::string in_folder(const std::string& folder, const std::string& name) const {
        return folder.ends_with('/') || name.empty() ? folder + name : folder + '/' + name;
    }

    void add_named(const std::string& name) {
        StatInfo info{};
        info.kind = GSHM_KIND_DIRECTORY;  // the root
        if (!name.empty()) info = context_.stat(name);
        const auto file = into_ ? in_folder(target_, last_part(name)) : target_;
        if (info.kind != GSHM_KIND_DIRECTORY) return add_entry(name, file, info, true);
        if (!args_.recursive)
            throw Failure(EISDIR, fmt::format("{} is a directory", name.empty() ? "/" : printable(name)),
                          "`gshm get -r` gets all its entries");
        directories_ = true;
        add_directory(name, file);
    }

    void add_directory(const std::string& name, const std::string& folder) {
        const auto entries = check(context_.client().list(name), name);
        plan_.folders.push_back(folder);
        for (const auto& [own, info] : entries) {
            const auto entry = join_names(name, own);
            complaints_.guard([&] {
                if (gshm::is_directory(info)) add_directory(entry, in_folder(folder, own));
                else add_entry(entry, in_folder(folder, own), info, false);
            });
        }
    }

    // Links to objects are copied as objects. Links to directories are left out: they may form a cycle.
    void add_entry(const std::string& name, const std::string& file, const StatInfo& info, bool asked_for) {
        uint64_t size_bytes = info.size_bytes;
        if (info.kind == GSHM_KIND_SYMLINK) {
            const auto object = context_.client().open(name, {.map = false});
            if (!object && asked_for) throw Failure::of_error(object.error(), name);
            if (!object)
                return complaints_.warn(fmt::format("{} is a link that leads to no object, and left out", name));
            size_bytes = object->size();
        } else if (info.kind != GSHM_KIND_OBJECT) {
            if (asked_for) throw Failure(EOPNOTSUPP, fmt::format("{} is a special file", printable(name)));
            return complaints_.warn(fmt::format("{} is a special file, and left out", name));
        }
        targets_.add(name, file);
        plan_.items.push_back({name, file, size_bytes});
    }

    Context& context_;
    const GetArgs& args_;
    Complaints& complaints_;
    std::string target_;
    bool into_ = false;
    bool directories_ = false;
    GetPlan plan_;
    Targets targets_;
};

}  // namespace

GetPlan plan_get(Context& context, const GetArgs& args, Complaints& complaints) {
    return Planner(context, args, complaints).plan();
}

}  // namespace gshm::cli
