#include "cli/snapshot/tree.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/support/acls.h"
#include "cli/support/attributes.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// Why the library cannot create an entry of this name; nullopt if it can.
std::optional<std::string> unusable(const std::string& name) {
    constexpr size_t kNameBytes = 4095;
    if (!is_utf8(name)) return "its name is not UTF-8";
    if (name.size() > kNameBytes) return fmt::format("its name has more than {} bytes", kNameBytes);
    return std::nullopt;
}

// A time since the last use begins again with the restore. So does that of a pinned object, which does not pass now.
uint64_t left_of_ttl(const StatInfo& info) {
    if ((info.flags & GSHM_STAT_TTL_UNUSED) != 0 || info.expires_ns == 0) return info.ttl_ms;
    const auto now =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
    const int64_t left_ms = (info.expires_ns - now.count()) / 1'000'000;
    return std::clamp<uint64_t>(static_cast<uint64_t>(std::max<int64_t>(left_ms, 1)), 1, info.ttl_ms);
}

class Gatherer {
public:
    Gatherer(Context& context, const TreeEvents& events) : context_(context), events_(events) {
        manifest_.instance = check(context_.client().daemon(), {}).instance;
    }

    void add_named(const std::string& given) {
        const auto name = without_trailing_slashes(given);
        guarded(name, [&] {
            for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
                const auto parent = name.substr(0, end);
                const auto info = context_.stat(parent);
                if (info.kind == GSHM_KIND_SYMLINK)
                    throw Failure(
                        ENOTDIR,
                        fmt::format("{} leads through the symbolic link {}", printable(name), printable(parent)),
                        "name it by the directories that it is in");
                add_directory(parent, info);
            }
            add(name, context_.stat(name));
        });
        add_below();
    }
    void add_all() {
        note_root();
        unread_.push_back("");
        add_below();
    }
    Manifest take() { return std::move(manifest_); }

private:
    template <typename Body>
    void guarded(const std::string& name, Body&& body) {
        try {
            body();
        } catch (const Failure& failure) {
            if (failure.exit_code() == ExitCode::no_daemon) throw;
            manifest_.left_out.push_back({speakable(name), failure.what()});
            events_.failed(failure);
        }
    }

    void leave_out(const std::string& name, const std::string& reason) {
        manifest_.left_out.push_back({speakable(name), reason});
        events_.left_out(manifest_.left_out.back());
    }

    static std::string speakable(const std::string& name) { return is_utf8(name) ? name : printable(name); }

    // gshmd creates the root directory. A restore leaves it unchanged.
    void note_root() {
        const auto root = context_.stat("");
        if (root.mode != 01777 || has_acl(root) || has_default_acl(root) || root.device[0] != '\0' ||
            !get_attributes(context_, "").empty())
            leave_out("/", "the root directory is gshmd's: its mode, its device and its attributes are not saved");
    }

    // A work list instead of recursion, since directories of the mount may be nested to any depth.
    void add_below() {
        while (!unread_.empty()) {
            const auto directory = std::move(unread_.back());
            unread_.pop_back();
            guarded(directory, [&] { add_entries(directory); });
        }
    }

    void add_entries(const std::string& directory) {
        for (const auto& [last_part, info] : check(context_.client().list(directory), directory)) {
            const auto name = (directory.empty() ? "" : directory + "/") + last_part;
            guarded(name, [&] { add(name, info); });
        }
    }

    void add(const std::string& name, const StatInfo& info) {
        if (!seen_.insert(name).second) return;
        // The mount accepts any bytes in a name. The library, which restores it, does not.
        const bool is_directory = info.kind == GSHM_KIND_DIRECTORY;
        if (const auto reason = unusable(name))
            return leave_out(
                name, *reason + (is_directory && info.size_bytes > 0 ? "; its entries are not saved either" : ""));
        switch (info.kind) {
            case GSHM_KIND_DIRECTORY:
                seen_.erase(name);
                add_directory(name, info);
                return unread_.push_back(name);
            case GSHM_KIND_OBJECT: return add_object(name, info);
            case GSHM_KIND_SYMLINK: return add_symlink(name, info);
            default: return leave_out(name, "it is a pipe, a socket or a device file");
        }
    }

    void add_directory(const std::string& name, const StatInfo& info) {
        if (!seen_.insert(name + '/').second) return;
        manifest_.directories.push_back(
            {name, mode_of(info), info.uid, info.gid, (info.flags & GSHM_KEEP) != 0, info.device, {}});
        const size_t index = manifest_.directories.size() - 1;
        guarded(name, [&] { manifest_.directories[index].attributes = attributes_of(name); });
        guarded(name, [&] {
            if (has_acl(info)) manifest_.directories[index].acl = acl_of(name, false);
            if (has_default_acl(info)) manifest_.directories[index].default_acl = acl_of(name, true);
        });
    }

    static uint32_t mode_of(const StatInfo& info) { return has_acl(info) ? info.mode & ~077u : info.mode; }

    std::string acl_of(const std::string& name, bool of_new) {
        return acl_text(check(context_.client().acl(name, of_new), name));
    }

    std::vector<SavedAttribute> attributes_of(const std::string& name) {
        std::vector<SavedAttribute> attributes;
        for (auto& [key, value] : get_attributes(context_, name)) {
            if (is_utf8(key)) attributes.push_back({std::move(key), std::move(value)});
            else leave_out(name, fmt::format("its attribute {}, whose name is not UTF-8", printable(key)));
        }
        return attributes;
    }

    void add_symlink(const std::string& name, const StatInfo& info) {
        if (const auto known = symlinks_by_id_.find(info.id); known != symlinks_by_id_.end()) {
            manifest_.symlinks[known->second].names.push_back(name);
            return;
        }
        const auto target = check(context_.client().read_link(name), name);
        symlinks_by_id_[info.id] = manifest_.symlinks.size();
        manifest_.symlinks.push_back({{name}, target, info.uid, info.gid});
    }

    void add_object(const std::string& name, const StatInfo& info) {
        if (const auto known = by_id_.find(info.id); known != by_id_.end()) {
            manifest_.objects[known->second].names.push_back(name);
            return;
        }
        // Done first: an object whose name is gone by now is not recorded.
        auto attributes = attributes_of(name);
        auto acl = has_acl(info) ? acl_of(name, false) : std::string();
        if (info.state == GSHM_STATE_OPEN && info.leases > 0) warn_of_writers(name);
        SavedObject object;
        object.names = {name};
        object.mode = mode_of(info);
        object.acl = std::move(acl);
        object.uid = info.uid;
        object.gid = info.gid;
        object.device = info.device;
        object.flags = info.flags;
        object.sealed = info.state == GSHM_STATE_SEALED;
        object.attributes = std::move(attributes);
        object.created_ns = info.created_ns;
        object.ttl_ms = left_of_ttl(info);
        object.ttl_unused = (info.flags & GSHM_STAT_TTL_UNUSED) != 0;
        object.identity = {manifest_.instance, info.id, info.size_bytes, info.modified_ns};
        by_id_[info.id] = manifest_.objects.size();
        manifest_.objects.push_back(std::move(object));
    }

    void warn_of_writers(const std::string& name) {
        for (const auto& holder : context_.client().holders(name).value_or(std::vector<Holder>())) {
            if (holder.writable == 0 || holder.pid == ::getpid()) continue;
            return events_.noticed(fmt::format("{} is open for writing by pid {} ({}): if that writes to it now, the "
                                               "copy is a mixture",
                                               printable(name), holder.pid, printable(holder.command)));
        }
    }

    Context& context_;
    const TreeEvents& events_;
    Manifest manifest_;
    std::set<std::string> seen_;        // directories end in a slash
    std::map<uint64_t, size_t> by_id_;  // objects
    std::map<uint64_t, size_t> symlinks_by_id_;
    std::vector<std::string> unread_;  // directories with entries still to be added
};

}  // namespace

Manifest gather_tree(Context& context, const std::vector<std::string>& names, const TreeEvents& events) {
    Gatherer gatherer(context, events);
    for (const auto& name : names) gatherer.add_named(name);
    if (names.empty()) gatherer.add_all();
    return gatherer.take();
}

std::vector<Record> left_out_records(const std::vector<LeftOut>& left_out) {
    std::vector<Record> records;
    for (const auto& [name, reason] : left_out) records.emplace_back().add("name", name).add("reason", reason);
    return records;
}

bool is_at_or_below(std::string_view entry, std::string_view name) {
    return entry.starts_with(name) && (entry.size() == name.size() || entry[name.size()] == '/');
}

}  // namespace gshm::cli
