#include "cli/support/describe.h"

#include <fmt/format.h>

#include "cli/support/acls.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

std::vector<std::string> flag_names(uint32_t flags) {
    std::vector<std::string> names;
    if (flags & GSHM_KEEP) names.push_back("keep");
    if (flags & GSHM_COMPRESSIBLE) names.push_back("compressible");
    if (flags & GSHM_DEDICATED) names.push_back("dedicated");
    if (flags & GSHM_STAT_EPHEMERAL) names.push_back("ephemeral");
    if (flags & GSHM_STAT_PINNED) names.push_back("pinned");
    if (flags & GSHM_STAT_TTL_UNUSED) names.push_back("ttl-unused");
    if (flags & GSHM_EVICTABLE) names.push_back("evictable");
    return names;
}

bool is_directory(const StatInfo& info) {
    return info.kind == GSHM_KIND_DIRECTORY;
}

char type_letter(const StatInfo& info) {
    switch (info.kind) {
        case GSHM_KIND_DIRECTORY: return 'd';
        case GSHM_KIND_SYMLINK: return 'l';
        case GSHM_KIND_SPECIAL: return '?';
        default: return '-';
    }
}

}  // namespace

std::string kind_text(const StatInfo& info) {
    switch (info.kind) {
        case GSHM_KIND_DIRECTORY: return "directory";
        case GSHM_KIND_SYMLINK: return "symlink";
        case GSHM_KIND_SPECIAL: return "special";
        default: return "object";
    }
}

std::string state_text(const StatInfo& info) {
    if (info.kind != GSHM_KIND_OBJECT) return "-";
    return info.state == GSHM_STATE_SEALED ? "sealed" : "open";
}

std::string device_text(const StatInfo& info) {
    return info.tier[0] ? fmt::format("{} ({})", info.device, info.tier) : info.device;
}

Record stat_record(const std::string& name, const StatInfo& info) {
    Record record;
    record.add("name", name).add("kind", kind_text(info));
    if (is_directory(info)) {
        record.add("entries", info.size_bytes);
    } else if (info.kind == GSHM_KIND_OBJECT) {
        record.add("state", state_text(info))
            .add("size_bytes", info.size_bytes)
            .add("device", info.device)
            .add("tier", info.tier)
            .add("id", info.id)
            .add("extent", info.extent)
            .add("extent_offset", info.extent_offset)
            .add("allocation_bytes", info.allocation_bytes)
            .add("leases", info.leases)
            .add("flags", flag_names(info.flags));
        if (info.ttl_ms != 0) record.add("ttl_ms", info.ttl_ms);
        if (info.expires_ns != 0) record.add("expires_ns", info.expires_ns).add("expires", time_text(info.expires_ns));
    }
    record.add("mode", mode_text(info.mode)).add("uid", info.uid).add("gid", info.gid);
    record.add("created_ns", info.created_ns).add("created", time_text(info.created_ns));
    record.add("modified_ns", info.modified_ns).add("modified", time_text(info.modified_ns));
    return record;
}

std::string stat_text(const std::string& name, const StatInfo& info, const std::vector<Attribute>& attributes,
                      const ShownAcls& acls) {
    Accounts accounts;
    std::vector<std::pair<std::string, std::string>> lines = {{"name", name.empty() ? "/" : name}};
    if (is_directory(info)) {
        lines.emplace_back("kind", "directory");
        lines.emplace_back("entries", std::to_string(info.size_bytes));
    } else if (info.kind != GSHM_KIND_OBJECT) {
        lines.emplace_back("kind", kind_text(info));
    } else {
        lines.emplace_back("kind", "object");
        lines.emplace_back("state", state_text(info));
        lines.emplace_back("size", info.size_bytes < 1024
                                       ? fmt::format("{} bytes", info.size_bytes)
                                       : fmt::format("{} ({} bytes)", size_text(info.size_bytes), info.size_bytes));
        lines.emplace_back("device", info.device);
        if (info.tier[0]) lines.emplace_back("tier", info.tier);
        lines.emplace_back("id", std::to_string(info.id));
        lines.emplace_back(
            "extent", fmt::format("{}, at {} of {} bytes", info.extent, info.extent_offset, info.allocation_bytes));
        lines.emplace_back("leases", std::to_string(info.leases));
        const auto flags = flag_names(info.flags);
        lines.emplace_back("flags", flags.empty() ? "-" : fmt::format("{}", fmt::join(flags, ", ")));
        if (info.ttl_ms != 0) {
            const bool unused = (info.flags & GSHM_STAT_TTL_UNUSED) != 0;
            lines.emplace_back("ttl", duration_text(info.ttl_ms) + (unused ? " since the last use" : ""));
            const bool pinned = (info.flags & GSHM_STAT_PINNED) != 0;
            lines.emplace_back("expires", info.expires_ns != 0 ? time_text(info.expires_ns)
                                          : pinned             ? "not while it is pinned"
                                                               : "not while it is in use");
        }
    }
    lines.emplace_back("mode",
                       fmt::format("{} {}", mode_text(info.mode), permissions_text(type_letter(info), info.mode)));
    lines.emplace_back("owner", fmt::format("{} ({})", accounts.user(info.uid), info.uid));
    lines.emplace_back("group", fmt::format("{} ({})", accounts.group(info.gid), info.gid));
    auto add_acl = [&](const char* title, const std::vector<AclEntry>& acl) {
        std::vector<std::string> entries;
        for (const AclEntry& entry : acl) entries.push_back(entry_text(accounts, entry));
        if (!acl.empty()) lines.emplace_back(title, fmt::format("{}", fmt::join(entries, ",")));
    };
    add_acl("acl", acls.acl);
    add_acl("default acl", acls.default_acl);
    lines.emplace_back("created", time_text(info.created_ns));
    lines.emplace_back("modified", time_text(info.modified_ns));
    for (const auto& [key, value] : attributes) lines.emplace_back("attr " + key, attribute_text(value));
    return key_value_text(lines);
}

std::string device_state_text(const DeviceInfo& device) {
    if (!device.failed) return "ok";
    return device.failure[0] ? std::string("failed: ") + device.failure : "failed";
}

}  // namespace gshm::cli
