#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/mounts.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

uint64_t available(const DeviceInfo& device) {
    return device.capacity_bytes > device.used_bytes ? device.capacity_bytes - device.used_bytes : 0;
}

// Rounded up, as df(1) does: 100% is full, 1% is not empty.
double used_percent(const DeviceInfo& device) {
    if (device.capacity_bytes == 0) return 0;
    return std::ceil(100.0 * static_cast<double>(device.used_bytes) / static_cast<double>(device.capacity_bytes));
}

Record space_record(const DeviceInfo& device) {
    Record record;
    record.add("device", device.name)
        .add("size_bytes", device.capacity_bytes)
        .add("used_bytes", device.used_bytes)
        .add("object_bytes", device.object_bytes)
        .add("unlinked_bytes", device.unlinked_bytes)
        .add("available_bytes", available(device))
        .add("evictable_bytes", device.evictable_bytes)
        .add("evicted_bytes", device.evicted_bytes)
        .add("evicted_objects", device.evicted_objects)
        .add("failed", device.failed != 0);
    if (device.failed) record.add("failure", device.failure);
    return record;
}

// The unlinked memory that one process holds on one device.
struct Hold {
    std::string device;
    Holder holder;
    uint64_t bytes = 0;
    uint64_t objects = 0;
};

// Sorted by size, the largest first.
std::vector<Hold> list_holds(Context& context) {
    std::map<std::pair<std::string, int32_t>, Hold> holds;
    for (const auto& entry : context.unlinked()) {
        for (const auto& holder : entry.holders) {
            Hold& hold = holds[{entry.info.device, holder.pid}];
            hold.device = entry.info.device;
            hold.holder = holder;
            hold.bytes += entry.info.size_bytes;
            ++hold.objects;
        }
    }
    std::vector<Hold> sorted;
    for (auto& [key, hold] : holds) sorted.push_back(std::move(hold));
    std::ranges::stable_sort(sorted, std::greater(), &Hold::bytes);
    return sorted;
}

std::string holds_text(const std::vector<Hold>& holds, Accounts& accounts, bool exact_bytes) {
    constexpr size_t kMost = 10;
    Table table({">UNLINKED", "DEVICE", ">PID", "USER", "COMMAND"});
    for (size_t i = 0; i < holds.size() && i < kMost; ++i) {
        const auto& [device, holder, bytes, objects] = holds[i];
        table.add_row({size_text(bytes, exact_bytes), device, std::to_string(holder.pid), accounts.user(holder.uid),
                       holder.command});
    }
    const auto rest = holds.size() > kMost ? fmt::format("and {} processes more; ", holds.size() - kMost) : "";
    return fmt::format("\nUnlinked, but held by\n{}{}`gshm holders` lists it by object\n", table.text(), rest);
}

Record hold_record(const Hold& hold, Accounts& accounts) {
    Record record;
    record.add("device", hold.device)
        .add("pid", hold.holder.pid)
        .add("uid", hold.holder.uid)
        .add("user", accounts.user(hold.holder.uid))
        .add("command", hold.holder.command)
        .add("bytes", hold.bytes)
        .add("objects", hold.objects);
    return record;
}

}  // namespace

int cmd_df(Context& context, const DfArgs& args) {
    std::vector<Record> records;
    Table table(
        {"DEVICE", ">SIZE", ">USED", ">OBJECTS", ">UNLINKED", ">EVICTABLE", ">EVICTED", ">AVAIL", ">USE%", "STATE"});
    bool unlinked = false;
    for (const auto& device : context.devices()) {
        unlinked = unlinked || device.unlinked_bytes > 0;
        records.push_back(space_record(device));
        const auto size = [&](uint64_t bytes) { return size_text(bytes, args.exact_bytes); };
        table.add_row({device.name, size(device.capacity_bytes), size(device.used_bytes), size(device.object_bytes),
                       size(device.unlinked_bytes), size(device.evictable_bytes), size(device.evicted_bytes),
                       size(available(device)), fmt::format("{:.0f}%", used_percent(device)),
                       device_state_text(device)});
    }
    const auto mounts = context.mounts();
    const auto holds = unlinked ? list_holds(context) : std::vector<Hold>();
    Accounts accounts;
    if (context.json()) {
        std::vector<Record> held;
        for (const auto& hold : holds) held.push_back(hold_record(hold, accounts));
        Record record;
        record.add("devices", std::move(records)).add("unlinked", std::move(held)).add("mounts", mount_records(mounts));
        context.print(record);
    } else {
        context.print(table.text());
        if (!holds.empty()) context.print(holds_text(holds, accounts, args.exact_bytes));
        if (!mounts.empty()) context.print(fmt::format("\nMounted at {}\n", mounts_text(mounts)));
    }
    return 0;
}

}  // namespace gshm::cli
