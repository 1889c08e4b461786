#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {

int cmd_tiers(Context& context, const DfArgs& args) {
    std::vector<Record> records;
    Table table({"TIER", ">SIZE", ">USED", ">OBJECTS", "KEEP", "STATE"});
    for (const auto& tier : check(context.client().tiers(), {})) {
        const bool keep = (tier.flags & GSHM_TIER_KEEP) != 0;
        // A folder without a limit has the space of its disk.
        const bool bounded = tier.capacity_bytes != UINT64_MAX;
        Record record;
        record.add("name", tier.name);
        if (bounded) record.add("size_bytes", tier.capacity_bytes);
        record.add("used_bytes", tier.used_bytes).add("objects", tier.objects).add("keep", keep);
        if (tier.failure[0]) record.add("failure", tier.failure);
        records.push_back(std::move(record));
        table.add_row({printable(tier.name), bounded ? size_text(tier.capacity_bytes, args.exact_bytes) : "-",
                       size_text(tier.used_bytes, args.exact_bytes), std::to_string(tier.objects), keep ? "yes" : "no",
                       tier.failure[0] ? "failed: " + printable(tier.failure) : "ok"});
    }
    if (context.json()) {
        Record record;
        record.add("tiers", std::move(records));
        context.print(record);
    } else {
        context.print(table.text());
    }
    return 0;
}

namespace {

int change_tier(Context& context, const NamesArgs& args, const char* verb, bool demote) {
    std::vector<Record> records;
    const int exit_code = context.for_each(args.names, [&](const std::string& name) {
        check(demote ? context.client().demote(name) : context.client().promote(name), name);
        if (context.json())
            records.push_back(Record().add("name", name).add("tier", check(context.client().stat(name), name).tier));
    });
    if (context.json()) {
        Record record;
        record.add(verb, std::move(records));
        context.print(record);
    }
    return exit_code;
}

}  // namespace

int cmd_promote(Context& context, const NamesArgs& args) {
    return change_tier(context, args, "promoted", false);
}

int cmd_demote(Context& context, const NamesArgs& args) {
    return change_tier(context, args, "demoted", true);
}

}  // namespace gshm::cli
