#include <cmath>

#include <fmt/core.h>

#include "commands.h"
#include "device_list.h"
#include "table.h"
#include "text.h"

namespace gshm::cli {
namespace {

uint64_t available(const gshm_device_info& device) {
    return device.capacity_bytes > device.used_bytes ? device.capacity_bytes - device.used_bytes : 0;
}

// Rounded up, as df(1) does: 100% is full, 1% is not empty.
double used_percent(const gshm_device_info& device) {
    if (device.capacity_bytes == 0) return 0;
    return std::ceil(100.0 * static_cast<double>(device.used_bytes) / static_cast<double>(device.capacity_bytes));
}

Record space_record(const gshm_device_info& device) {
    Record record;
    record.add("device", device.name)
        .add("size_bytes", device.capacity_bytes)
        .add("used_bytes", device.used_bytes)
        .add("object_bytes", device.object_bytes)
        .add("unlinked_bytes", device.unlinked_bytes)
        .add("available_bytes", available(device))
        .add("failed", device.failed != 0);
    if (device.failed) record.add("failure", device.failure);
    return record;
}

}  // namespace

int cmd_df(Context& context, const DfArgs& args) {
    std::vector<Record> records;
    Table table({"DEVICE", ">SIZE", ">USED", ">OBJECTS", ">UNLINKED", ">AVAIL", ">USE%", "STATE"});
    for (const auto& device : list_devices(context)) {
        records.push_back(space_record(device));
        const auto size = [&](uint64_t bytes) { return size_text(bytes, args.exact_bytes); };
        table.add_row({device.name, size(device.capacity_bytes), size(device.used_bytes), size(device.object_bytes),
                       size(device.unlinked_bytes), size(available(device)),
                       fmt::format("{:.0f}%", used_percent(device)), device_state_text(device)});
    }
    if (context.json()) {
        Record record;
        record.add("devices", std::move(records));
        context.print(record);
    } else {
        context.print(table.text());
    }
    return 0;
}

}  // namespace gshm::cli
