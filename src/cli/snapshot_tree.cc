#include "snapshot_tree.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <unistd.h>

#include <fmt/core.h>

#include "text.h"

namespace gshm::cli {
namespace {

class Gatherer {
public:
    Gatherer(Context& context, const TreeEvents& events) : context_(context), events_(events) {
        auto info = sized<gshm_daemon_info>();
        check(gshm_daemon(context_.client(), &info), {});
        manifest_.instance = info.instance;
    }

    void add_named(const std::string& given) {
        const auto name = without_trailing_slashes(given);
        guarded([&] {
            for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1))
                add_directory(name.substr(0, end), context_.stat(name.substr(0, end)));
            add(name, context_.stat(name));
        });
    }
    void add_entries(const std::string& directory) {
        gshm_listing* handle = nullptr;
        check(gshm_list(context_.client(), directory.c_str(), 0, &handle), directory);
        const Listing listing(handle);
        for (size_t i = 0; i < gshm_listing_count(handle); ++i) {
            const auto name = (directory.empty() ? "" : directory + "/") + gshm_listing_name(handle, i);
            guarded([&] {
                auto info = sized<gshm_stat_info>();
                check(gshm_listing_stat(handle, i, &info), name);
                add(name, info);
            });
        }
    }
    Manifest take() { return std::move(manifest_); }

private:
    template <typename Body>
    void guarded(Body&& body) {
        try {
            body();
        } catch (const Failure& failure) {
            if (failure.exit_code() == ExitCode::no_daemon) throw;
            events_.failed(failure);
        }
    }

    void add(const std::string& name, const gshm_stat_info& info) {
        if (!seen_.insert(name).second) return;
        // The mount takes any bytes for a name; the library, which is to restore it, does not.
        if (!is_text(name)) return events_.noticed(fmt::format("{} is not UTF-8, and left out", printable(name)));
        switch (info.kind) {
            case GSHM_KIND_DIRECTORY:
                seen_.erase(name);
                add_directory(name, info);
                return add_entries(name);
            case GSHM_KIND_OBJECT: return add_object(name, info);
            case GSHM_KIND_SYMLINK: return add_symlink(name, info);
            default: return events_.noticed(fmt::format("{} is a special file, and left out", name));
        }
    }

    void add_directory(const std::string& name, const gshm_stat_info& info) {
        if (!seen_.insert(name + '/').second) return;
        manifest_.directories.push_back({name, info.mode, info.uid, info.gid, (info.flags & GSHM_KEEP) != 0, info.device});
    }

    void add_symlink(const std::string& name, const gshm_stat_info& info) {
        std::string target(4096, '\0');
        size_t bytes = 0;
        check(gshm_read_link(context_.client(), name.c_str(), target.data(), target.size(), &bytes), name);
        target.resize(bytes);
        if (!is_text(target)) throw Failure(EILSEQ, fmt::format("{} leads to what is not UTF-8", printable(name)));
        manifest_.symlinks.push_back({name, target, info.uid, info.gid});
    }

    void add_object(const std::string& name, const gshm_stat_info& info) {
        if (const auto known = by_id_.find(info.id); known != by_id_.end()) {
            manifest_.objects[known->second].names.push_back(name);
            return;
        }
        // A name that could not be looked up again could not be written down either.
        const auto attributes = get_attributes(context_, name);
        if (info.state == GSHM_STATE_OPEN && info.leases > 0) warn_of_writers(name);
        SavedObject object;
        object.names = {name};
        object.mode = info.mode;
        object.uid = info.uid;
        object.gid = info.gid;
        object.device = info.device;
        object.flags = info.flags;
        object.sealed = info.state == GSHM_STATE_SEALED;
        object.attributes = attributes;
        object.created_ns = info.created_ns;
        object.identity = {manifest_.instance, info.id, info.size_bytes, info.modified_ns};
        by_id_[info.id] = manifest_.objects.size();
        manifest_.objects.push_back(std::move(object));
    }

    void warn_of_writers(const std::string& name) {
        std::vector<gshm_holder> holders(16, sized<gshm_holder>());
        size_t count = 0;
        if (gshm_holders(context_.client(), name.c_str(), holders.data(), holders.size(), &count) < 0) return;
        holders.resize(std::min(count, holders.size()));
        for (const auto& holder : holders) {
            if (holder.writable == 0 || holder.pid == ::getpid()) continue;
            return events_.noticed(fmt::format("{} is open for writing by pid {} ({}): if that writes to it now, the "
                                                "copy is a mixture",
                                                name, holder.pid, holder.command));
        }
    }

    Context& context_;
    const TreeEvents& events_;
    Manifest manifest_;
    std::set<std::string> seen_;  // directories with a slash
    std::map<uint64_t, size_t> by_id_;
};

}  // namespace

Manifest gather_tree(Context& context, const std::vector<std::string>& names, const TreeEvents& events) {
    Gatherer gatherer(context, events);
    for (const auto& name : names) gatherer.add_named(name);
    if (names.empty()) gatherer.add_entries("");
    return gatherer.take();
}

bool is_at_or_below(std::string_view entry, std::string_view name) {
    return entry.starts_with(name) && (entry.size() == name.size() || entry[name.size()] == '/');
}

}  // namespace gshm::cli
