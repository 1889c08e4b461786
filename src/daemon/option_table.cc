#include "daemon/option_table.h"

#include <algorithm>

#include "base/log.h"
#include "daemon/server.h"
#include "daemon/tier_specs.h"
#include "http/server.h"

namespace gshm::core {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Status check_keeper(std::string_view value) {
    for (std::string_view kind : {"process", "systemd", "none"}) {
        if (value == kind) return {};
    }
    return fail(EINVAL, "'{}' is none of process, systemd and none", value);
}

void apply_budgets(Server& server, const Options& options) {
    server.set_budgets(options.user_share, options.budgets);
}

void apply_device_limits(Server& server, const Options& options) {
    store_lock.assert_held();
    server.set_device_limits(options.devices, options.limit_bytes);
}

void apply_tier_free(Server& server, const Options& options) {
    store_lock.assert_held();
    server.set_tier_free(options.tier_free);
}

const Option rows[] = {
    {.name = "foreground",
     .member = &Options::foreground,
     .help = "stay in the foreground, log to stderr",
     .letter = 'f',
     .command_line_only = true},
    {.name = "debug",
     .member = &Options::debug,
     .help = "log every request that fails and every session",
     .letter = 'd',
     .apply = [](Server&, const Options& options) { log_set_level(options.debug ? LogLevel::debug : LogLevel::info); }},
    {.name = "config",
     .member = &Options::config,
     .argument = "FILE",
     .help = "the configuration, or none to read no file (default: $GSHM_CONFIG, else\n"
             "/etc/gshm/gshm.toml for root, else gshm/gshm.toml in $XDG_CONFIG_HOME or ~/.config)",
     .command_line_only = true},
    {.name = "check-config",
     .member = &Options::check_config,
     .help = "print the options in effect and where each comes from, and start nothing",
     .command_line_only = true},
    {.name = "dir",
     .member = &Options::dir,
     .argument = "DIR",
     .help = "runtime folder with the socket gshm.sock\n"
             "(default: $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm)",
     .is_path = true,
     .default_text = "$GSHM_DIR, /run/gshm or $XDG_RUNTIME_DIR/gshm"},
    {.name = "mountpoint",
     .member = &Options::mountpoints,
     .argument = "DIR",
     .help = "mount there, as for a MOUNTPOINT without a flag; may be given several times",
     .is_path = true,
     .default_text = "none"},
    {.name = "device",
     .member = &Options::devices,
     .argument = "SPEC",
     .help = "use this device; may be given several times, the first is the default one\n"
             "({devices}; a size at the end bounds what is used; default: all GPUs, then host)",
     .default_text = "all GPUs, then host",
     .kept_as = "devices",
     .apply = apply_device_limits,
     .applies = [](const Options& from,
                   const Options& to) { return DeviceSet::differ_in_limits_only(from.devices, to.devices); }},
    {.name = "limit",
     .member = &Options::limit_bytes,
     .argument = "BYTES",
     .help = "use at most so much of each device that its SPEC does not bound (64M, 4G, ...)",
     .default_text = "none",
     .kept_as = "limit",
     .apply = apply_device_limits},
    {.name = "staging",
     .member = &Options::staging_bytes,
     .argument = "BYTES",
     .help = "pinned memory that files pass through on their way to and from a GPU (64M)",
     .least = 32 * kMiB,  // room for a few chunks of large transfers
     .kept_as = "staging"},
    {.name = "tier",
     .member = &Options::tiers,
     .argument = "SPEC",
     .help = "objects that are marked as evictable leave a full GPU for this tier: host:SIZE, FOLDER[:SIZE] or\n"
             "FOLDER[:SIZE]:keep, which outlives a restart of the machine; both may be given, host comes first;\n"
             "none: no tier (docs/tiers.md)",
     .default_text = "none",
     .kept_as = "tiers",
     .check = [](std::string_view value) -> Status {
         TRY(parse_tiers({std::string(value)}));
         return {};
     }},
    {.name = "tier-free",
     .member = &Options::tier_free,
     .argument = "PERCENT",
     .help = "of each device with evictable objects, kept free for new ones (5)",
     .least = 0,
     .most = 90,
     .kept_as = "tier free",
     .apply = apply_tier_free},
    {.name = "threads",
     .member = &Options::threads,
     .argument = "N",
     .help = "threads that serve the clients of a user (three for four cores, from 2 to 12)",
     .most = limits::kClientThreads,
     .default_text = "three for four cores, from 2 to 12"},
    {.name = "user-share",
     .member = &Options::user_share,
     .argument = "PERCENT",
     .help = "the largest part of connections, descriptors, leases, names and the like that one user other than\n"
             "root and the one who runs gshmd may hold (50); several users hold less each",
     .most = 99,
     .kept_as = "user share",
     .apply = apply_budgets},
    {.name = "pin-share",
     .member = &Options::pin_share,
     .argument = "PERCENT",
     .help = "the part of each device that a user may pin of the objects that it owns (10); root pins without a limit",
     .least = 0,
     .most = 100,
     .kept_as = "pin share",
     .apply = [](Server& server, const Options& options) { server.set_pin_share(options.pin_share); }},
    {.name = "budgets",
     .member = &Options::budgets,
     .argument = "RESOURCE=TOTAL",
     .help = "at most so much of a resource for all users together, if that is less than the machine allows; may\n"
             "be given several times. Resources: {resources}",
     .default_text = "what the machine allows",
     .apply = apply_budgets},
    {.name = "metrics",
     .member = &Options::metrics,
     .argument = "ADDRESS",
     .help =
         "serve metrics at this address and port too, such as 127.0.0.1:9402, for Prometheus; may be given several\n"
         "times; none: no address, which is the default. They are always at metrics.sock in the runtime folder\n"
         "(docs/metrics.md)",
     .default_text = "none",
     .kept_as = "metrics",
     .check = [](std::string_view value) -> Status {
         return value == kNoMetrics ? Status{} : http::check_address(value);
     }},
    {.name = "no-passthrough",
     .member = &Options::no_passthrough,
     .help = "the bytes of host files go through gshmd, as they do for users other than root and on kernels\n"
             "before 6.9; else the kernel reads and writes them by itself"},
    {.name = "io-uring",
     .member = &Options::io_uring,
     .help = "the mount's requests through io_uring, where the kernel has that switched on: less latency, but such\n"
             "a mount does not outlive gshmd"},
    {.name = "keeper",
     .member = &Options::keeper,
     .argument = "KIND",
     .help = "who holds the memory while gshmd is away: process (gshm-keeper, the default), systemd (its\n"
             "store of descriptors; see packaging/gshmd.service), none (nothing outlives gshmd then)",
     .check = check_keeper},
    {.name = "takeover",
     .member = &Options::takeover,
     .help = "take the place of the gshmd that runs there: its clients and its mount stay",
     .command_line_only = true},
    {.name = "discard",
     .member = &Options::discard,
     .help = "give up what an earlier gshmd has left, and begin anew",
     .command_line_only = true},
    {.name = "salvage",
     .member = &Options::salvage,
     .help = "make what an earlier gshmd has left usable again if gshmd says that it is damaged: names that can\n"
             "be read are there again, memory without one is in lost+found/, for root to copy out of",
     .command_line_only = true},
    {.name = "help", .member = &Options::help, .help = "this text", .letter = 'h', .command_line_only = true},
    {.name = "version", .member = &Options::version, .help = "the version", .command_line_only = true},
};

}  // namespace

std::span<const Option> option_table() {
    return rows;
}

const Option* find_option(std::string_view name) {
    const auto found = std::ranges::find(rows, name, &Option::name);
    return found == std::end(rows) ? nullptr : found;
}

std::vector<std::string_view> option_keys() {
    std::vector<std::string_view> names;
    for (const auto& row : rows) {
        if (!row.command_line_only) names.push_back(row.name);
    }
    return names;
}

}  // namespace gshm::core
