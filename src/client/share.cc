#include "client/share.h"

#include <algorithm>
#include <grp.h>
#include <memory>
#include <pwd.h>

#include "client/api.h"
#include "client/requests.h"

namespace gshm::core::client {
namespace {

constexpr uint16_t kSearch = 1;
constexpr uint16_t kRead = 4;
constexpr uint16_t kReadWrite = 6;

bool is_same(const gshm_acl_entry& a, const gshm_acl_entry& b) {
    return a.tag == b.tag && a.id == b.id;
}

// Of a user that this machine does not know: none.
std::vector<gid_t> groups_of(uid_t uid) {
    std::vector<char> buffer(16 << 10);
    passwd entry = {};
    passwd* found = nullptr;
    if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
    int count = 64;
    std::vector<gid_t> groups(static_cast<size_t>(count));
    while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
        if (count <= static_cast<int>(groups.size())) return {};
        groups.resize(static_cast<size_t>(count));
    }
    groups.resize(static_cast<size_t>(count));
    return groups;
}

// Of a user, or of a user of whom nothing is known but this group. As is_permitted() in the daemon.
bool may_search(const gshm_stat_info& directory, std::span<const gshm_acl_entry> acl, const gshm_acl_entry& who) {
    const bool is_user = who.tag == GSHM_ACL_USER;
    if (is_user && who.id == 0) return true;
    auto rights_of = [&](uint16_t tag) -> unsigned {
        auto found = std::ranges::find(acl, tag, &gshm_acl_entry::tag);
        return found == acl.end() ? 7 : found->rights;
    };
    if (is_user && who.id == directory.uid) return (rights_of(GSHM_ACL_OWNER) & kSearch) != 0;
    const unsigned mask = rights_of(GSHM_ACL_MASK);
    if (is_user) {
        auto own = std::ranges::find_if(acl, [&](const auto& entry) { return is_same(entry, who); });
        if (own != acl.end()) return (own->rights & mask & kSearch) != 0;
    }
    const auto groups = is_user ? groups_of(who.id) : std::vector<gid_t>{who.id};
    bool in_group = false;
    for (const auto& entry : acl) {
        if (entry.tag != GSHM_ACL_OWNING_GROUP && entry.tag != GSHM_ACL_GROUP) continue;
        const gid_t group = entry.tag == GSHM_ACL_GROUP ? entry.id : directory.gid;
        if (std::ranges::find(groups, group) == groups.end()) continue;
        if ((entry.rights & mask & kSearch) != 0) return true;
        in_group = true;
    }
    return !in_group && (rights_of(GSHM_ACL_OTHER) & kSearch) != 0;
}

// All directories above the name, the root directory first.
std::vector<std::string> parents_of(const std::string& name) {
    std::vector<std::string> parents;
    if (name.empty()) return parents;
    parents.emplace_back();
    for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
        parents.push_back(name.substr(0, end));
    }
    return parents;
}

}  // namespace

Result<std::vector<gshm_acl_entry>> get_acl(Core& core, const std::string& name, bool inherited) {
    auto answer = TRY(core.connection().call(
        wire::RequestBody::GetAcl,
        [&](auto& builder) { return wire::CreateGetAcl(builder, builder.CreateString(name), inherited).Union(); },
        Lost::retry));
    std::vector<gshm_acl_entry> entries;
    const auto* records = GSHM_BODY(answer, AclReply)->entries();
    if (records == nullptr) return entries;
    for (const auto* record : *records) entries.push_back({record->tag(), record->rights(), record->id()});
    return entries;
}

Status change_acl(Core& core, const std::string& name, bool inherited, AclChange change,
                  std::span<const gshm_acl_entry> entries) {
    return call_for_status(core, wire::RequestBody::ChangeAcl, [&](auto& builder) {
        std::vector<wire::AclRecord> records;
        for (const auto& entry : entries) records.emplace_back(entry.tag, entry.rights, entry.id);
        auto object = builder.CreateString(name);
        auto list = builder.CreateVectorOfStructs(records);
        return wire::CreateChangeAcl(builder, object, inherited, static_cast<uint8_t>(change), list).Union();
    });
}

void Sharing::note(const Status& status) {
    if (!status && !first_) first_ = status.error();
}

Result<gshm_stat_info> Sharing::stat(const std::string& name) {
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    const int code = gshm_stat(client_, name.c_str(), &info);
    if (code != 0) return std::unexpected(Error{-code, gshm_last_error()});
    return info;
}

std::vector<gshm_acl_entry> Sharing::with_rights(uint16_t rights) const {
    auto entries = with_;
    for (auto& entry : entries) entry.rights = rights;
    return entries;
}

template <typename Change>
void Sharing::walk(const std::string& name, const gshm_stat_info& info, bool recursive, const Change& change) {
    struct Found {
        std::string name;
        gshm_stat_info info;
    };
    // Not recursive: directories of the mount have any depth.
    std::vector<Found> pending{{name, info}};
    for (bool first = true; !pending.empty(); first = false) {
        const Found at = std::move(pending.back());
        pending.pop_back();
        const Status changed = change(at.name, at.info);
        if (!changed && !first && changed.error().code == ENOENT) continue;
        note(changed);
        const bool is_link = at.info.kind == GSHM_KIND_SYMLINK;
        if (!recursive || (at.info.kind != GSHM_KIND_DIRECTORY && !is_link)) continue;
        gshm_listing* listed = nullptr;
        if (const int code = gshm_list(client_, at.name.c_str(), 0, &listed); code != 0) {
            // Removed, or replaced, meanwhile.
            if (code != -ENOENT && code != -ENOTDIR) note(std::unexpected(Error{-code, gshm_last_error()}));
            continue;
        }
        const std::unique_ptr<gshm_listing, decltype(&gshm_listing_free)> listing(listed, gshm_listing_free);
        // An object lists itself.
        const size_t count = gshm_listing_count(listed);
        if (is_link && count == 1 && at.name == gshm_listing_name(listed, 0)) continue;
        for (size_t i = count; i-- > 0;) {
            gshm_stat_info below = GSHM_STAT_INFO_INIT;
            if (gshm_listing_stat(listed, i, &below) != 0 || below.kind == GSHM_KIND_SYMLINK) continue;
            pending.push_back({(at.name.empty() ? "" : at.name + "/") + gshm_listing_name(listed, i), below});
        }
    }
}

Status Sharing::share_node(const std::string& name, const gshm_stat_info& info, bool write) {
    const uint16_t rights = write ? kReadWrite : kRead;
    bool is_directory = info.kind == GSHM_KIND_DIRECTORY;
    if (is_directory || info.kind == GSHM_KIND_SYMLINK) {
        auto passed_on = change_acl(core_, name, true, AclChange::add, with_rights(rights | kSearch));
        // A symbolic link leads to an object or a directory. The next request gives the error of any other case.
        if (!passed_on && is_directory) return passed_on;
        is_directory = passed_on.has_value();
    }
    TRY(change_acl(core_, name, false, AclChange::add, with_rights(is_directory ? rights | kSearch : rights)));
    ++info_.changed;
    return {};
}

Status Sharing::unshare_node(const std::string& name, const gshm_stat_info& info) {
    const bool is_link = info.kind == GSHM_KIND_SYMLINK;
    bool changed = false;
    for (const bool inherited : {false, true}) {
        if (!is_link && (info.flags & (inherited ? GSHM_STAT_DEFAULT_ACL : GSHM_STAT_ACL)) == 0) continue;
        const auto acl = TRY(get_acl(core_, name, inherited));
        const bool has = std::ranges::any_of(acl, [&](const gshm_acl_entry& entry) {
            if (with_.empty()) return inherited || (entry.tag & (GSHM_ACL_USER | GSHM_ACL_GROUP | GSHM_ACL_MASK)) != 0;
            return std::ranges::any_of(with_, [&](const auto& who) { return is_same(entry, who); });
        });
        if (!has) continue;
        TRY(change_acl(core_, name, inherited, with_.empty() ? AclChange::replace : AclChange::remove, with_));
        changed = true;
    }
    if (changed) ++info_.changed;
    return {};
}

Status Sharing::check_parent(const std::string& name, bool open) {
    const auto directory = TRY(stat(name));
    if (directory.kind != GSHM_KIND_DIRECTORY)
        return {};  // a symbolic link: the directories of its target are not known
    const auto acl = TRY(get_acl(core_, name, false));
    std::vector<gshm_acl_entry> blocked;
    for (gshm_acl_entry who : with_) {
        if (may_search(directory, acl, who)) continue;
        auto own = std::ranges::find_if(acl, [&](const auto& entry) { return is_same(entry, who); });
        who.rights = static_cast<uint16_t>((own == acl.end() ? 0 : own->rights) | kSearch);
        blocked.push_back(who);
    }
    if (blocked.empty()) return {};
    if (open) {
        auto opened = change_acl(core_, name, false, AclChange::add, blocked);
        if (opened || opened.error().code != EPERM) return opened;
    }
    if (info_.blocked.tag != 0) return {};
    info_.blocked = blocked[0];
    info_.blocked.rights = 0;
    const std::string shown = name.empty() ? "/" : name;
    memcpy(info_.blocked_by, shown.data(), std::min(shown.size(), sizeof info_.blocked_by - 1));
    return {};
}

Status Sharing::share(const std::string& name, uint32_t flags) {
    const auto info = TRY(stat(name));
    // The parents last: with an error before, nothing is opened up.
    walk(name, info, (flags & GSHM_SHARE_RECURSIVE) != 0, [&](const std::string& node, const gshm_stat_info& at) {
        return share_node(node, at, (flags & GSHM_SHARE_WRITE) != 0);
    });
    if (first_ && info_.changed == 0) return std::unexpected(*first_);
    for (const auto& parent : parents_of(name)) note(check_parent(parent, (flags & GSHM_SHARE_PARENTS) != 0));
    return first_ ? Status(std::unexpected(*first_)) : Status{};
}

Status Sharing::unshare(const std::string& name, bool recursive) {
    const auto info = TRY(stat(name));
    walk(name, info, recursive,
         [&](const std::string& node, const gshm_stat_info& at) { return unshare_node(node, at); });
    return first_ ? Status(std::unexpected(*first_)) : Status{};
}

}  // namespace gshm::core::client
