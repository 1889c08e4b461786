#include <algorithm>

#include "cli/commands.h"
#include "cli/doctor/finding.h"
#include "cli/support/context.h"
#include "cli/support/table.h"

namespace gshm::cli {
namespace {

const char* health_text(Health health) {
    switch (health) {
        case Health::ok: return "ok";
        case Health::warning: return "warning";
        default: return "missing";
    }
}

Findings examine(Context& context) {
    const auto machine = Machine::from_environment();
    const auto daemon = ask_daemon(context);
    const auto local = find_local_gpus();
    // The limits of the daemon count. Without a daemon, the limits of this process stand for those of one started here.
    std::string process = daemon.info ? std::to_string(daemon.info->pid) : "self";
    if (!machine.exists("/proc/" + process + "/limits")) process = "self";

    Findings findings;
    check_driver(machine, local, findings);
    check_gpus(machine, local, findings);
    check_fabric(machine, local, findings);
    check_dmabuf(local, findings);
    check_gpudirect_rdma(machine, local, findings);
    check_cufile(machine, local, findings);
    check_rdma_devices(machine, findings);
    check_io_uring(machine, findings);
    check_fuse(machine, findings);
    check_memlock(machine, process, findings);
    check_shared_memory(machine, findings);
    check_descriptors(machine, process, findings);
    check_numa(machine, local, findings);
    check_daemon(machine, context, daemon, findings);
    check_keepers(machine, findings);
    return findings;
}

Record record_of(const Finding& finding) {
    Record record;
    record.add("check", finding.check)
        .add("status", health_text(finding.health))
        .add("needed", finding.needed)
        .add("found", finding.found)
        .add("remedy", finding.remedy);
    if (finding.details) record.add("details", *finding.details);
    return record;
}

}  // namespace

int cmd_doctor(Context& context) {
    const auto findings = examine(context);
    const auto count = [&](Health health) {
        return static_cast<uint64_t>(std::ranges::count(findings, health, &Finding::health));
    };
    const bool healthy = std::ranges::none_of(
        findings, [](const Finding& finding) { return finding.health == Health::missing && finding.needed; });
    if (context.json()) {
        std::vector<Record> records;
        for (const auto& finding : findings) records.push_back(record_of(finding));
        Record record;
        record.add("healthy", healthy)
            .add("warnings", count(Health::warning))
            .add("missing", count(Health::missing))
            .add("checks", std::move(records));
        context.print(record);
    } else {
        Table table({"STATUS", "CHECK", "FOUND"});
        for (const auto& finding : findings)
            table.add_row(
                {finding.health == Health::missing && finding.needed ? "MISSING" : health_text(finding.health),
                 finding.check, finding.found + (finding.remedy.empty() ? "" : "; " + finding.remedy)});
        context.print(table.text());
    }
    return static_cast<int>(healthy ? ExitCode::ok : ExitCode::failed);
}

}  // namespace gshm::cli
