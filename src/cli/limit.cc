// gshm limit, gshm quota: what users, groups and directories may have, and what they have.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/numbers.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

const char* kind_name(uint32_t kind) {
    switch (kind) {
        case GSHM_LIMIT_USER: return "user";
        case GSHM_LIMIT_GROUP: return "group";
        case GSHM_LIMIT_DIRECTORY: return "dir";
        case GSHM_LIMIT_RESERVE: return "reserve";
        default: return "?";
    }
}

// A name, or a number, which need not belong to a user here.
template <typename Find>
uint32_t id_of(const std::string& text, const char* option, const char* kind, Find find) {
    if (auto* found = find(text.c_str())) return *found;
    constexpr unsigned kMost = UINT32_MAX - 1;
    try {
        return parse_count(option, text, 0, kMost);
    } catch (const Failure&) {
        throw Failure::usage(fmt::format("{}: there is no {} \"{}\"", option, kind, printable(text)));
    }
}

uint32_t uid_of(const std::string& text) {
    return id_of(text, "--user", "user", [](const char* name) {
        passwd* found = getpwnam(name);
        return found == nullptr ? nullptr : &found->pw_uid;
    });
}

uint32_t gid_of(const std::string& text) {
    return id_of(text, "--group", "group", [](const char* name) {
        group* found = getgrnam(name);
        return found == nullptr ? nullptr : &found->gr_gid;
    });
}

// The account that the options name; kind 0: none.
Limit account_of(const AccountArgs& args) {
    Limit limit;
    limit.device = args.device;
    if ((args.user ? 1 : 0) + (args.group ? 1 : 0) + (args.directory ? 1 : 0) > 1)
        throw Failure::usage("--user, --group and --directory exclude each other");
    if (args.user) {
        limit.info.kind = GSHM_LIMIT_USER;
        limit.info.id = uid_of(*args.user);
    } else if (args.group) {
        limit.info.kind = GSHM_LIMIT_GROUP;
        limit.info.id = gid_of(*args.group);
    } else if (args.directory) {
        limit.info.kind = GSHM_LIMIT_DIRECTORY;
        limit.path = without_trailing_slashes(*args.directory);
        if (limit.path.empty()) limit.path.push_back('/');
    }
    return limit;
}

// Sees the limits and the use of all: root, and gshmd's user, whose folder it is.
bool is_admin(Context& context) {
    struct stat info = {};
    return ::geteuid() == 0 || (::stat(context.dir().c_str(), &info) == 0 && info.st_uid == ::geteuid());
}

// The name of the account, as people write it.
std::string account_text(const Limit& limit, Accounts& accounts) {
    switch (limit.info.kind) {
        case GSHM_LIMIT_USER: return accounts.user(limit.info.id);
        case GSHM_LIMIT_GROUP: return accounts.group(limit.info.id);
        case GSHM_LIMIT_DIRECTORY: return limit.path;
        default: return "-";
    }
}

Record limit_record(const Limit& limit, Accounts& accounts) {
    const gshm_limit& info = limit.info;
    Record record;
    record.add("kind", kind_name(info.kind));
    if (info.kind == GSHM_LIMIT_USER) record.add("uid", info.id).add("user", accounts.user(info.id));
    if (info.kind == GSHM_LIMIT_GROUP) record.add("gid", info.id).add("group", accounts.group(info.id));
    if (info.kind == GSHM_LIMIT_DIRECTORY) record.add("dir", limit.path);
    record.add("device", limit.device);  // "": all devices together
    if (info.kind == GSHM_LIMIT_RESERVE) return std::move(record.add("bytes", info.bytes).add("percent", info.percent));
    record.add("bytes", info.bytes)
        .add("soft_bytes", info.soft_bytes)
        .add("objects", info.objects)
        .add("soft_objects", info.soft_objects)
        .add("grace_s", info.grace_s)
        .add("used_bytes", info.used_bytes)
        .add("used_objects", info.used_objects)
        .add("unlinked_bytes", info.unlinked_bytes)
        .add("bytes_until_ns", info.bytes_until_ns)
        .add("objects_until_ns", info.objects_until_ns);
    return record;
}

// "2026-03-01T14:05:06+01:00", for the soft limit that ends first; "over": its grace has ended.
std::string grace_text(const gshm_limit& info) {
    int64_t until = info.bytes_until_ns;
    if (until == 0 || (info.objects_until_ns != 0 && info.objects_until_ns < until)) until = info.objects_until_ns;
    if (until == 0) return "-";
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    constexpr int64_t kNsPerS = 1'000'000'000;
    if (until <= now.tv_sec * kNsPerS + now.tv_nsec) return "over";
    // Without the fraction.
    std::string text = time_text(until);
    return text.erase(strlen("2026-03-01T14:05:06"), strlen(".123456789"));
}

bool has_own_grace(const Limit& limit) {
    constexpr uint64_t kDefault = uint64_t{7} * 24 * 3600;
    return limit.info.grace_s != 0 && limit.info.grace_s != kDefault;
}

// none: said if no account is listed.
int print_limits(Context& context, const std::vector<Limit>& limits, bool exact_bytes, const std::string& none) {
    constexpr uint64_t kMsPerS = 1000;
    Accounts accounts;
    std::vector<Record> records;
    std::vector<std::string> heads{"KIND", "NAME", "DEVICE", ">USED", ">SOFT", ">LIMIT", ">OBJECTS", ">SOFT", ">LIMIT"};
    const bool with_grace = std::ranges::any_of(limits, has_own_grace);
    if (with_grace) heads.emplace_back(">GRACE");
    heads.emplace_back("GRACE ENDS");
    Table table(heads);
    Table reserves({"DEVICE", ">RESERVE", ">PERCENT"});
    bool has_accounts = false;
    bool has_reserves = false;
    const auto size = [&](uint64_t bytes) { return bytes == 0 ? "-" : size_text(bytes, exact_bytes); };
    const auto number = [](uint64_t count) { return count == 0 ? "-" : std::to_string(count); };
    for (const Limit& limit : limits) {
        const gshm_limit& info = limit.info;
        records.push_back(limit_record(limit, accounts));
        if (info.kind == GSHM_LIMIT_RESERVE) {
            has_reserves = true;
            reserves.add_row({limit.device, size_text(info.bytes, exact_bytes), number(info.percent)});
            continue;
        }
        has_accounts = true;
        std::vector<std::string> row{kind_name(info.kind),
                                     account_text(limit, accounts),
                                     limit.device.empty() ? "all" : limit.device,
                                     size_text(info.used_bytes, exact_bytes),
                                     size(info.soft_bytes),
                                     size(info.bytes),
                                     std::to_string(info.used_objects),
                                     number(info.soft_objects),
                                     number(info.objects)};
        if (with_grace) row.push_back(has_own_grace(limit) ? duration_text(info.grace_s * kMsPerS) : "-");
        row.push_back(grace_text(info));
        table.add_row(std::move(row));
    }
    if (context.json()) {
        Record record;
        record.add("limits", std::move(records));
        context.print(record);
        return 0;
    }
    if (has_accounts) context.print(table.text());
    else if (!has_reserves || !none.empty()) context.print(none.empty() ? "there are no limits\n" : none + "\n");
    if (has_reserves) context.print(fmt::format("{}{}", has_accounts || !none.empty() ? "\n" : "", reserves.text()));
    return 0;
}

// "10%", "4G", "none"
Limit reserve_of(const LimitArgs& args) {
    Limit limit;
    limit.info.kind = GSHM_LIMIT_RESERVE;
    limit.info.fields = GSHM_LIMIT_BYTES;
    limit.device = args.account.device;
    const std::string& text = *args.reserve;
    if (text.ends_with('%')) {
        constexpr unsigned kMostPercent = 90;
        limit.info.percent = parse_count("--reserve", text.substr(0, text.size() - 1), 1, kMostPercent);
    } else {
        limit.info.bytes = parse_limit("--reserve", text);
    }
    return limit;
}

}  // namespace

int cmd_limit(Context& context, const LimitArgs& args) {
    Limit limit = account_of(args.account);
    const auto field = [&](const std::optional<uint64_t>& value, uint32_t bit, uint64_t& member) {
        if (!value) return;
        limit.info.fields |= bit;
        member = *value;
    };
    field(args.bytes, GSHM_LIMIT_BYTES, limit.info.bytes);
    field(args.soft_bytes, GSHM_LIMIT_SOFT_BYTES, limit.info.soft_bytes);
    field(args.objects, GSHM_LIMIT_OBJECTS, limit.info.objects);
    field(args.soft_objects, GSHM_LIMIT_SOFT_OBJECTS, limit.info.soft_objects);
    field(args.grace_s, GSHM_LIMIT_GRACE, limit.info.grace_s);
    if (args.reserve) {
        if (limit.info.kind != 0 || limit.info.fields != 0)
            throw Failure::usage("--reserve is of a device, and has no other limits");
        if (args.account.device.empty()) throw Failure::usage("--reserve is of a device: name it with --device");
        check(context.client().set_limit(reserve_of(args)), {});  // messages name the device
        return 0;
    }
    if (limit.info.fields == 0) {
        const uint32_t flags = limit.info.kind == 0 ? 0 : uint32_t{GSHM_LIMITS_ID};
        return print_limits(context, check(context.client().limits(flags, limit), limit.path), args.account.exact_bytes,
                            {});
    }
    if (limit.info.kind == 0) throw Failure::usage("a limit is of a --user, a --group or a --directory");
    const auto set = context.client().set_limit(limit);
    if (!set && set.error().code == ENOENT && limit.info.kind == GSHM_LIMIT_DIRECTORY)
        throw Failure::of_error(set.error(), limit.path,
                                "a directory with limits must exist; `gshm mkdir` makes one that stays");
    check(set, limit.path);
    return 0;
}

int cmd_quota(Context& context, const QuotaArgs& args) {
    const Limit which = account_of(args.account);
    uint32_t flags = GSHM_LIMITS_USED;
    std::string none;
    if (which.info.kind != 0) {
        if (args.all) throw Failure::usage("--all shows all accounts, and excludes --user, --group and --directory");
        flags |= GSHM_LIMITS_ID;
    } else if (args.all) {
        if (!is_admin(context)) {
            throw Failure(EPERM, ExitCode::permission, "only root and the user who runs gshmd see what others use",
                          "`gshm quota` shows what you use");
        }
        none = "nobody uses anything, and there are no limits";
    } else {
        flags |= GSHM_LIMITS_OWN;
        none = "you use nothing, and have no limits";
        if (is_admin(context)) none += "; `--all` shows the others";
    }
    const auto limits = check(context.client().limits(flags, which), which.path);
    return print_limits(context, limits, args.account.exact_bytes, none);
}

}  // namespace gshm::cli
