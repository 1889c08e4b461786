#include <algorithm>
#include <cerrno>
#include <chrono>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/support/acls.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/table.h"
#include "cli/support/tensors.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

struct Shown {
    std::string name;   // from the root
    std::string shown;  // relative to the listed path, or the full name if recursive; directories end in a slash
    StatInfo info;
};

// The path of an object is listed under its full name. A directory may also have a single entry of that name.
bool is_object(Context& context, const std::string& path) {
    return !path.empty() && context.stat(path).kind == GSHM_KIND_OBJECT;
}

// All objects below the directory, without those of unreadable directories, which are reported. As `list(path, true)`
// otherwise, where one unreadable directory fails the whole list.
void walk(Context& context, const std::string& path, const std::string& prefix, Complaints& complaints,
          std::vector<Entry>& entries) {
    const auto directory = path + (path.empty() || prefix.empty() ? "" : "/") + prefix;
    auto listed = context.client().list(directory);
    if (!listed) {
        // A directory that is removed or replaced meanwhile has no entries.
        const int code = listed.error().code;
        if (!prefix.empty() && (code == ENOENT || code == ENOTDIR)) return;
        const auto failure = Failure::of_error(listed.error(), directory);
        if (prefix.empty()) throw failure;
        return complaints.fail(failure);
    }
    for (auto& [name, info] : *listed) {
        const auto whole = prefix.empty() ? name : prefix + '/' + name;
        if (is_directory(info)) walk(context, path, whole, complaints, entries);
        else entries.push_back({whole, info});
    }
}

std::vector<Entry> list_below(Context& context, const std::string& path, Complaints& complaints) {
    auto listed = context.client().list(path, true);
    if (listed || listed.error().code != EACCES) return check(std::move(listed), path);
    std::vector<Entry> entries;
    walk(context, path, {}, complaints, entries);
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
}

std::vector<Shown> list(Context& context, const std::string& path, bool recursive, Complaints& complaints) {
    auto listed = recursive ? list_below(context, path, complaints) : check(context.client().list(path), path);
    const bool itself = listed.size() == 1 && listed[0].name == path && is_object(context, path);
    const std::string prefix = path.empty() || itself ? "" : path + '/';

    std::vector<Shown> entries;
    entries.reserve(listed.size());
    for (auto& [name, info] : listed) {
        Shown entry{prefix + name, name, info};
        if (recursive) entry.shown = entry.name;
        if (is_directory(info)) entry.shown += '/';
        entries.push_back(std::move(entry));
    }
    return entries;
}

// A round trip for each object: a long list has no column for tensors.
constexpr size_t kMostAsked = 4096;

// The number of tensors of each entry; empty if no entry has any.
std::vector<std::string> tensor_column(Context& context, const std::vector<Shown>& entries) {
    std::vector<std::string> column(entries.size(), "-");
    bool has_some = false;
    for (size_t i = 0; i < entries.size() && entries.size() <= kMostAsked; ++i) {
        if (entries[i].info.kind != GSHM_KIND_OBJECT || !is_sealed(entries[i].info)) continue;
        const auto count = tensor_count(context, entries[i].name);
        if (!count) continue;
        column[i] = std::to_string(*count);
        has_some = true;
    }
    return has_some ? column : std::vector<std::string>();
}

// The time that is left; empty if no entry expires.
std::vector<std::string> expiry_column(const std::vector<Shown>& entries) {
    const auto now_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    std::vector<std::string> column(entries.size(), "-");
    bool has_some = false;
    for (size_t i = 0; i < entries.size(); ++i) {
        const auto& info = entries[i].info;
        if (info.kind != GSHM_KIND_OBJECT || info.ttl_ms == 0) continue;
        has_some = true;
        if ((info.flags & GSHM_STAT_PINNED) != 0) column[i] = "pinned";
        else if (info.expires_ns == 0) column[i] = "in use";
        else
            column[i] = duration_text(
                static_cast<uint64_t>(std::max<int64_t>((info.expires_ns - now_ns) / 1'000'000'000, 0)) * 1000);
    }
    return has_some ? column : std::vector<std::string>();
}

std::string details_text(Context& context, const std::vector<Shown>& entries, bool exact_bytes) {
    Accounts accounts;
    const auto tensors = tensor_column(context, entries);
    std::vector<std::string> titles = {"MODE", ">LEASES", "OWNER", "GROUP", ">SIZE", "DEVICE", "STATE", "MODIFIED"};
    const auto expiry = expiry_column(entries);
    if (!expiry.empty()) titles.emplace_back(">EXPIRES");
    if (!tensors.empty()) titles.emplace_back(">TENSORS");
    titles.emplace_back("NAME");
    Table table(titles);
    for (size_t i = 0; i < entries.size(); ++i) {
        const auto& [name, shown, info] = entries[i];
        const bool other = info.kind != GSHM_KIND_OBJECT;
        const char type = info.kind == GSHM_KIND_DIRECTORY ? 'd'
                          : info.kind == GSHM_KIND_SYMLINK ? 'l'
                          : other                          ? '?'
                                                           : '-';
        auto modified = time_text(info.modified_ns).substr(0, 16);  // to the minute
        modified[10] = ' ';
        std::vector<std::string> cells = {permissions_text(type, info.mode) +
                                              (has_acl(info) || has_default_acl(info) ? "+" : ""),
                                          other ? "-" : std::to_string(info.leases),
                                          accounts.user(info.uid),
                                          accounts.group(info.gid),
                                          other ? "-" : size_text(info.size_bytes, exact_bytes),
                                          other ? "-" : device_text(info),
                                          state_text(info),
                                          modified};
        if (!expiry.empty()) cells.push_back(expiry[i]);
        if (!tensors.empty()) cells.push_back(tensors[i]);
        cells.push_back(shown);
        table.add_row(std::move(cells));
    }
    return table.text();
}

}  // namespace

int cmd_ls(Context& context, const LsArgs& args) {
    const auto path = without_trailing_slashes(args.path);
    Complaints complaints(context);
    const auto entries = list(context, path, args.recursive, complaints);
    if (context.json()) {
        std::vector<Record> records;
        for (const auto& entry : entries) records.push_back(stat_record(entry.name, entry.info));
        Record record;
        record.add("path", path).add("entries", std::move(records));
        context.print(record);
    } else if (args.details) {
        context.print(details_text(context, entries, args.exact_bytes));
        // An object of tensors is listed as a directory would be.
        const bool is_itself = entries.size() == 1 && entries[0].name == path;
        const auto tensors = is_itself ? find_tensors(context, path) : std::nullopt;
        if (tensors && !tensors->empty()) context.print("\n" + tensors_text(*tensors, 0, args.exact_bytes));
    } else {
        // A pipe gets the exact names. A terminal gets them without control characters.
        const bool terminal = ::isatty(STDOUT_FILENO);
        std::string text;
        for (const auto& entry : entries) text += (terminal ? printable(entry.shown) : entry.shown) + '\n';
        context.print(text);
    }
    return complaints.exit_code();
}

}  // namespace gshm::cli
