#include "cli/copy/put_plan.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/copy/targets.h"
#include "cli/support/acls.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

class Planner {
public:
    Planner(Context& context, const PutArgs& args, Complaints& complaints)
        : context_(context), args_(args), complaints_(complaints) {}

    PutPlan plan() {
        const auto& all = args_.sources_and_name;
        const std::vector<std::string> sources(all.begin(), all.end() - 1);
        if (all.back().empty()) throw Failure::usage("the name is empty");
        target_ = without_trailing_slashes(all.back());
        const bool is_directory = look_at_target();
        into_ = is_directory || sources.size() > 1 || all.back().ends_with('/');
        for (const auto& source : sources) complaints_.guard([&] { add_source(source); });
        if (args_.size_bytes && (plan_.items.size() != 1 || plan_.items[0].kind != PutItem::Kind::stream))
            throw Failure::usage("--size is for one source alone, standard input or a pipe: files have their size");
        plan_.single = sources.size() == 1 && !folders_;
        look_at_names();
        return std::move(plan_);
    }

private:
    // Returns whether the target is a directory. Throws a Failure if a directory is needed and the target is something
    // else.
    bool look_at_target() {
        if (target_.empty()) return true;
        auto found = context_.client().stat(target_);
        if (!found && (found.error().code == ENOENT || found.error().code == ENOTDIR)) return false;
        const auto info = check(std::move(found), target_);
        const bool wants_directory = args_.sources_and_name.size() > 2 || args_.sources_and_name.back().ends_with('/');
        if (info.kind != GSHM_KIND_DIRECTORY && wants_directory)
            throw Failure(ENOTDIR, fmt::format("{} is not a directory", printable(target_)));
        return info.kind == GSHM_KIND_DIRECTORY;
    }

    void add(PutItem::Kind kind, const std::string& source, const std::string& name, uint64_t size_bytes = 0) {
        targets_.add(source, name);
        plan_.items.push_back({kind, source, name, size_bytes, args_.mode.value_or(0), {}, args_.device});
    }

    void add_source(const std::string& source) {
        if (source == "-") return add_standard_input();
        struct stat info{};
        if (::stat(source.c_str(), &info) != 0) throw Failure::of_errno(source);
        const auto own = last_part(source);
        const auto name = into_ ? join_names(target_, own) : target_;
        if (S_ISDIR(info.st_mode)) {
            if (!args_.recursive)
                throw Failure(EISDIR, fmt::format("{} is a directory", printable(source)),
                              "`gshm put -r` puts all its files");
            folders_ = true;
            return add_folder(source, name);
        }
        if (S_ISREG(info.st_mode) && info.st_size == 0 && has_bytes(source))
            return add(PutItem::Kind::stream, source, name);
        if (S_ISREG(info.st_mode)) return add(PutItem::Kind::file, source, name, static_cast<uint64_t>(info.st_size));
        if (S_ISBLK(info.st_mode)) return add(PutItem::Kind::file, source, name, size_of_disk(source));
        if (S_ISFIFO(info.st_mode)) return add(PutItem::Kind::stream, source, name);
        throw Failure(EINVAL, ExitCode::usage,
                      fmt::format("{} is neither a regular file nor a pipe", printable(source)),
                      "`gshm put - NAME` reads standard input");
    }

    void add_standard_input() {
        if (into_)
            throw Failure(EISDIR, "standard input has no file name to use in a directory",
                          "put it alone, and name the object");
        struct stat info{};
        const off_t begin = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
        const bool is_file = ::fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode) && begin >= 0;
        if (is_file && !args_.size_bytes)
            add(PutItem::Kind::file, "-", target_, static_cast<uint64_t>(std::max<off_t>(0, info.st_size - begin)));
        else add(PutItem::Kind::stream, "-", target_);
    }

    // Files of /proc have size 0 and contents.
    static bool has_bytes(const std::string& path) {
        const auto file = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        char byte = 0;
        return file.get() >= 0 && ::read(file.get(), &byte, 1) == 1;
    }

    static uint64_t size_of_disk(const std::string& path) {
        const auto disk = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const off_t size = disk.get() < 0 ? -1 : ::lseek(disk.get(), 0, SEEK_END);
        if (size < 0) throw Failure::of_errno(path);
        return static_cast<uint64_t>(size);
    }

    void add_folder(const std::string& folder, const std::string& name) {
        const size_t before = plan_.items.size();
        for (const auto& entry : entries_of(folder)) {
            const auto path = fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", entry);
            complaints_.guard([&] { add_entry(path, join_names(name, entry)); });
        }
        if (plan_.items.size() == before && !name.empty()) add(PutItem::Kind::directory, folder, name);
    }

    // Links to files are copied as files. Links to folders are left out: they may form a cycle, and the folder may be
    // huge.
    void add_entry(const std::string& path, const std::string& name) {
        struct stat info{};
        if (::lstat(path.c_str(), &info) != 0) throw Failure::of_errno(path);
        if (S_ISDIR(info.st_mode)) return add_folder(path, name);
        const bool link = S_ISLNK(info.st_mode);
        if (link && ::stat(path.c_str(), &info) != 0)
            return complaints_.warn(fmt::format("{} is a link that leads nowhere, and left out", path));
        if (S_ISREG(info.st_mode)) return add(PutItem::Kind::file, path, name, static_cast<uint64_t>(info.st_size));
        complaints_.warn(
            fmt::format("{} is a {}, and left out", path, S_ISDIR(info.st_mode) ? "link to a folder" : "special file"));
    }

    static std::vector<std::string> entries_of(const std::string& folder) {
        const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
        if (!stream) throw Failure::of_errno(folder);
        std::vector<std::string> names;
        for (errno = 0; const dirent* entry = ::readdir(stream.get()); errno = 0) {
            const std::string name = entry->d_name;
            if (name != "." && name != "..") names.push_back(name);
        }
        if (errno != 0) throw Failure::of_errno(folder);
        std::ranges::sort(names);
        return names;
    }

    // Refuses existing names before the first copy begins.
    void look_at_names() {
        auto& items = plan_.items;
        std::vector<std::string> names;
        for (const auto& item : items) names.push_back(item.name);
        const auto found = context_.client().stat_batch(names);
        std::vector<PutItem> kept;
        for (size_t i = 0; i < items.size(); ++i) {
            if (!found[i]) {
                const auto failure = Failure::of_error(found[i].error(), {});
                if (failure.exit_code() == ExitCode::no_daemon) throw failure;
            }
            if (!found[i] || is_free(items[i], *found[i])) kept.push_back(std::move(items[i]));
        }
        items = std::move(kept);
    }

    bool is_free(PutItem& item, const StatInfo& old) {
        const bool directory = old.kind == GSHM_KIND_DIRECTORY;
        if (item.kind == PutItem::Kind::directory && directory) return true;
        if (directory) {
            complaints_.fail(Failure(EISDIR, fmt::format("{} is a directory", printable(item.name)),
                                     "choose another name; a directory is not replaced"));
            return false;
        }
        if (!args_.replace || item.kind == PutItem::Kind::directory) {
            complaints_.fail(Failure(EEXIST, fmt::format("{} exists", printable(item.name)),
                                     "--replace puts a new version in its place"));
            return false;
        }
        if (old.kind == GSHM_KIND_OBJECT) {
            if (!args_.mode && (old.mode & 0777) != 0) item.mode = old.mode & 0777;
            if (!args_.mode && has_acl(old)) {
                // Until it has the ACL, the object is its owner's alone.
                item.acl = check(context_.client().acl(item.name), item.name);
                item.mode = (old.mode & 0700) != 0 ? old.mode & 0700 : 0600;
            }
            if (args_.device.empty()) item.device = old.device;
        }
        return true;
    }

    Context& context_;
    const PutArgs& args_;
    Complaints& complaints_;
    std::string target_;
    bool into_ = false;
    bool folders_ = false;
    PutPlan plan_;
    Targets targets_;
};

}  // namespace

PutPlan plan_put(Context& context, const PutArgs& args, Complaints& complaints) {
    return Planner(context, args, complaints).plan();
}

std::string last_part(const std::string& path) {
    const auto plain = without_trailing_slashes(path);
    const auto part = plain.substr(plain.rfind('/') + 1);
    return part == "." || part == ".." ? "" : part;
}

std::string join_names(const std::string& directory, const std::string& name) {
    return directory.empty() || name.empty() ? directory + name : directory + '/' + name;
}

}  // namespace gshm::cli
