#include "commands.h"
#include "context.h"
#include "table.h"
#include "text.h"

namespace gshm::cli {
namespace {

std::vector<gshm_holder> list_holders(Context& context, const std::string& name) {
    std::vector<gshm_holder> holders(32, sized<gshm_holder>());
    for (;;) {
        size_t count = 0;
        check(gshm_holders(context.client(), name.c_str(), holders.data(), holders.size(), &count), name);
        const bool complete = count <= holders.size();
        holders.resize(count, sized<gshm_holder>());
        if (complete) return holders;
    }
}

}  // namespace

int cmd_holders(Context& context, const NameArgs& args) {
    std::vector<Record> records;
    Accounts accounts;
    Table table({">PID", "USER", "COMMAND", ">LEASES", "ACCESS"});
    for (const auto& holder : list_holders(context, args.name)) {
        const char* access = holder.writable ? "write" : "read";
        Record record;
        record.add("pid", holder.pid)
            .add("uid", holder.uid)
            .add("user", accounts.user(holder.uid))
            .add("command", holder.command)
            .add("leases", holder.leases)
            .add("access", access);
        records.push_back(std::move(record));
        table.add_row({std::to_string(holder.pid), accounts.user(holder.uid), holder.command,
                       std::to_string(holder.leases), access});
    }
    if (context.json()) {
        Record record;
        record.add("name", args.name).add("holders", std::move(records));
        context.print(record);
    } else {
        context.print(table.text());
    }
    return 0;
}

}  // namespace gshm::cli
