// Sharing with single users and groups: share, unshare.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/acls.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"

namespace gshm::cli {
namespace {

// As getfacl(1).
std::string shown_text(Context& context, const std::string& name, const StatInfo& info, Accounts& accounts) {
    std::string text = fmt::format("# name: {}\n# owner: {}\n# group: {}\n", printable(name.empty() ? "/" : name),
                                   accounts.user(info.uid), accounts.group(info.gid));
    for (const bool of_new : {false, true}) {
        const auto acl = check(context.client().acl(name, of_new), name);
        for (const AclEntry& entry : acl) {
            const uint32_t effective = effective_rights(acl, entry);
            text += fmt::format("{}{}", of_new ? "default:" : "", entry_text(accounts, entry));
            if (effective != entry.rights) text += fmt::format("  #effective:{}", rights_text(effective));
            text += '\n';
        }
    }
    return text;
}

Record shown_record(Context& context, const std::string& name, const StatInfo& info, Accounts& accounts) {
    Record record;
    record.add("name", name).add("uid", info.uid).add("gid", info.gid);
    record.add("acl", acl_records(accounts, check(context.client().acl(name), name)));
    record.add("default_acl", acl_records(accounts, check(context.client().acl(name, true), name)));
    return record;
}

int show(Context& context, const ShareArgs& args) {
    Accounts accounts;
    std::vector<Record> records;
    std::string text;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info = context.stat(name);
        if (context.json()) records.push_back(shown_record(context, name, info, accounts));
        else text += (text.empty() ? "" : "\n") + shown_text(context, name, info, accounts);
    });
    if (context.json()) {
        Record record;
        record.add("objects", std::move(records));
        context.print(record);
    } else {
        context.print(text);
    }
    return exit_code;
}

// The share has no effect for one of them.
void warn_of_parent(const Context& context, const std::string& name, const ShareInfo& info, bool with_parents) {
    Accounts accounts;
    const std::string_view parent = info.blocked_by;
    const bool group = info.blocked.tag == GSHM_ACL_GROUP;
    const std::string who =
        group ? "group " + accounts.group(info.blocked.id) : "user " + accounts.user(info.blocked.id);
    context.warn(fmt::format("{} cannot reach {}, because {} may not search {}: {}", who, printable(name),
                             group ? "its members" : "this user", printable(parent),
                             with_parents ? "ask its owner to share it" : "`gshm share --parents` permits that"));
}

std::string nothing_to_end(const std::string& name, const std::vector<AclEntry>& with, bool recursive) {
    Accounts accounts;
    std::string parties;
    for (const AclEntry& entry : with) parties += (parties.empty() ? "" : ", ") + party_text(accounts, entry);
    const std::string shown = name.empty() ? "/" : printable(name);
    const std::string what = recursive ? fmt::format("nothing at or below {} was", shown) : shown + " was not";
    return fmt::format("{} shared with {}", what, parties.empty() ? "a single user or group" : parties);
}

void print_changes(Context& context, const char* key, std::vector<Record> records) {
    if (!context.json()) return;
    Record record;
    record.add(key, std::move(records));
    context.print(record);
}

}  // namespace

int cmd_share(Context& context, const ShareArgs& args) {
    if (args.with.empty()) {
        if (args.write || args.recursive || args.parents)
            throw Failure::usage("share needs --to", "without options it shows with whom a name is shared");
        return show(context, args);
    }
    const auto with = parse_parties(args.with);
    std::vector<Record> records;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info =
            check(context.client().share(name, with,
                                         {.write = args.write, .recursive = args.recursive, .parents = args.parents}),
                  name);
        if (info.blocked.tag != 0) warn_of_parent(context, name, info, args.parents);
        Record record;
        record.add("name", name).add("changed", info.changed).add("blocked_by", info.blocked_by);
        records.push_back(std::move(record));
    });
    print_changes(context, "shared", std::move(records));
    return exit_code;
}

int cmd_unshare(Context& context, const ShareArgs& args) {
    const auto with = parse_parties(args.with);
    std::vector<Record> records;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info = check(context.client().unshare(name, with, args.recursive), name);
        if (info.changed == 0) context.warn(nothing_to_end(name, with, args.recursive));
        Record record;
        record.add("name", name).add("changed", info.changed);
        records.push_back(std::move(record));
    });
    print_changes(context, "unshared", std::move(records));
    return exit_code;
}

}  // namespace gshm::cli
