#include "cli/support/acls.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <grp.h>
#include <optional>
#include <pwd.h>

#include <fmt/core.h>

namespace gshm::cli {
namespace {

constexpr std::pair<uint16_t, const char*> kTags[] = {
    {GSHM_ACL_OWNER, "user"},  {GSHM_ACL_USER, "user"}, {GSHM_ACL_OWNING_GROUP, "group"},
    {GSHM_ACL_GROUP, "group"}, {GSHM_ACL_MASK, "mask"}, {GSHM_ACL_OTHER, "other"},
};

const char* tag_text(uint16_t tag) {
    for (const auto& [known, text] : kTags)
        if (known == tag) return text;
    return "?";
}

bool has_id(const AclEntry& entry) {
    return entry.tag == GSHM_ACL_USER || entry.tag == GSHM_ACL_GROUP;
}

std::optional<uint32_t> number_of(std::string_view text) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || number == UINT32_MAX) return {};
    return number;
}

AclEntry parse_party(const std::string& text) {
    constexpr const char* kHint = "write a user's name or uid, or @ and a group's name or gid";
    if (text.empty()) throw Failure::usage("the name of a user is empty", kHint);
    std::string name = text;
    bool group = false;
    for (const auto& [prefix, is_group] : {std::pair<std::string_view, bool>{"@", true},
                                           {"g:", true},
                                           {"group:", true},
                                           {"u:", false},
                                           {"user:", false}})
        if (name.starts_with(prefix)) {
            name.erase(0, prefix.size());
            group = is_group;
            break;
        }
    // A name of digits is found as a name first, as chown(1) does.
    if (group) {
        if (const auto* entry = name.empty() ? nullptr : ::getgrnam(name.c_str())) return acl_group(entry->gr_gid);
    } else if (const auto* entry = name.empty() ? nullptr : ::getpwnam(name.c_str())) {
        return acl_user(entry->pw_uid);
    }
    if (const auto number = number_of(name)) return group ? acl_group(*number) : acl_user(*number);
    const bool other_kind =
        !name.empty() && (group ? ::getpwnam(name.c_str()) != nullptr : ::getgrnam(name.c_str()) != nullptr);
    throw Failure::usage(
        fmt::format("there is no {} {}", group ? "group" : "user", printable(name.empty() ? text : name)),
        other_kind ? (group ? fmt::format("the user is {}, without @", printable(name))
                            : fmt::format("the group is @{}", printable(name)))
                   : kHint);
}

}  // namespace

bool has_acl(const StatInfo& info) {
    return (info.flags & GSHM_STAT_ACL) != 0;
}

bool has_default_acl(const StatInfo& info) {
    return (info.flags & GSHM_STAT_DEFAULT_ACL) != 0;
}

std::string rights_text(uint32_t rights) {
    return {rights & 4 ? 'r' : '-', rights & 2 ? 'w' : '-', rights & 1 ? 'x' : '-'};
}

std::string party_text(Accounts& accounts, const AclEntry& entry) {
    return entry.tag == GSHM_ACL_GROUP ? "@" + accounts.group(entry.id) : accounts.user(entry.id);
}

std::string entry_text(Accounts& accounts, const AclEntry& entry) {
    std::string name;
    if (entry.tag == GSHM_ACL_USER) name = accounts.user(entry.id);
    if (entry.tag == GSHM_ACL_GROUP) name = accounts.group(entry.id);
    return fmt::format("{}:{}:{}", tag_text(entry.tag), name, rights_text(entry.rights));
}

uint32_t effective_rights(std::span<const AclEntry> acl, const AclEntry& entry) {
    if (!has_id(entry) && entry.tag != GSHM_ACL_OWNING_GROUP) return entry.rights;
    const auto mask = std::ranges::find(acl, uint16_t{GSHM_ACL_MASK}, &AclEntry::tag);
    return mask == acl.end() ? entry.rights : entry.rights & mask->rights;
}

std::vector<Record> acl_records(Accounts& accounts, std::span<const AclEntry> acl) {
    std::vector<Record> records;
    for (const AclEntry& entry : acl) {
        Record record;
        const bool of_owner = entry.tag == GSHM_ACL_OWNER || entry.tag == GSHM_ACL_OWNING_GROUP;
        record.add("kind", of_owner ? (entry.tag == GSHM_ACL_OWNER ? "owner" : "owning_group") : tag_text(entry.tag));
        if (has_id(entry)) {
            record.add("id", entry.id);
            record.add("name", entry.tag == GSHM_ACL_USER ? accounts.user(entry.id) : accounts.group(entry.id));
        }
        record.add("rights", rights_text(entry.rights));
        records.push_back(std::move(record));
    }
    return records;
}

std::string acl_text(std::span<const AclEntry> acl) {
    std::string text;
    for (const AclEntry& entry : acl) {
        text += fmt::format("{}{}:{}:{}", text.empty() ? "" : ",", tag_text(entry.tag),
                            has_id(entry) ? std::to_string(entry.id) : "", rights_text(entry.rights));
    }
    return text;
}

std::vector<AclEntry> parse_acl(std::string_view text, std::string_view subject) {
    std::vector<AclEntry> acl;
    auto wrong = [&] {
        return Failure(EINVAL, fmt::format("{}: this is no ACL: {}", printable(subject), printable(text)));
    };
    for (std::string_view rest = text; !rest.empty();) {
        const auto part = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const size_t first = part.find(':');
        const size_t second = first == part.npos ? part.npos : part.find(':', first + 1);
        if (second == part.npos) throw wrong();
        const auto tag = part.substr(0, first);
        const auto id = part.substr(first + 1, second - first - 1);
        const auto rights = part.substr(second + 1);
        AclEntry entry = {};
        for (const auto& [known, name] : kTags) {
            const bool with_id = known == GSHM_ACL_USER || known == GSHM_ACL_GROUP;
            if (tag == name && with_id == !id.empty()) entry.tag = known;
        }
        const auto number = id.empty() ? std::optional<uint32_t>(0) : number_of(id);
        if (entry.tag == 0 || !number || rights.size() != 3) throw wrong();
        entry.id = *number;
        for (size_t i = 0; i < 3; ++i) {
            if (rights[i] == "rwx"[i]) entry.rights |= static_cast<uint16_t>(4 >> i);
            else if (rights[i] != '-') throw wrong();
        }
        acl.push_back(entry);
    }
    return acl;
}

std::vector<AclEntry> parse_parties(const std::vector<std::string>& texts) {
    std::vector<AclEntry> parties;
    for (const std::string& text : texts) {
        for (size_t begin = 0; begin <= text.size();) {
            const size_t end = std::min(text.find(',', begin), text.size());
            parties.push_back(parse_party(text.substr(begin, end - begin)));
            begin = end + 1;
        }
    }
    return parties;
}

}  // namespace gshm::cli
