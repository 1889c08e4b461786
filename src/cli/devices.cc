#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

std::vector<std::string> handle_names(uint32_t kinds) {
    std::vector<std::string> names;
    if (kinds & GSHM_HANDLE_POSIX_FD) names.push_back("posix-fd");
    if (kinds & GSHM_HANDLE_FABRIC) names.push_back("fabric");
    if (kinds & GSHM_HANDLE_DMABUF) names.push_back("dma-buf");
    return names;
}

Record device_record(const DeviceInfo& device) {
    Record record;
    record.add("name", device.name)
        .add("model", device.model)
        .add("uuid", device.uuid)
        .add("capacity_bytes", device.capacity_bytes)
        .add("granularity_bytes", device.granularity_bytes)
        .add("handles", handle_names(device.handle_kinds))
        .add("compressible", device.compressible != 0)
        .add("failed", device.failed != 0);
    if (device.failed) record.add("failure", device.failure);
    return record;
}

}  // namespace

int cmd_devices(Context& context, const DfArgs& args) {
    std::vector<Record> records;
    Table table({"DEVICE", "MODEL", "UUID", ">CAPACITY", ">GRANULARITY", "HANDLES", "COMPRESSIBLE", "STATE"});
    for (const auto& device : context.devices()) {
        records.push_back(device_record(device));
        const auto handles = handle_names(device.handle_kinds);
        table.add_row({device.name, device.model[0] ? device.model : "-", device.uuid[0] ? device.uuid : "-",
                       size_text(device.capacity_bytes, args.exact_bytes),
                       size_text(device.granularity_bytes, args.exact_bytes),
                       handles.empty() ? "-" : fmt::format("{}", fmt::join(handles, ",")),
                       device.compressible ? "yes" : "no", device_state_text(device)});
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
