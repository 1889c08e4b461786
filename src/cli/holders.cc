#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

const char* access_text(const Holder& holder) {
    return holder.writable ? "write" : "read";
}

std::vector<std::string> holder_cells(const Holder& holder, Accounts& accounts) {
    return {std::to_string(holder.pid), accounts.user(holder.uid), holder.command, std::to_string(holder.leases),
            access_text(holder)};
}

std::vector<Record> holder_records(const std::vector<Holder>& holders, Accounts& accounts) {
    std::vector<Record> records;
    for (const auto& holder : holders) {
        Record record;
        record.add("pid", holder.pid)
            .add("uid", holder.uid)
            .add("user", accounts.user(holder.uid))
            .add("command", holder.command)
            .add("leases", holder.leases)
            .add("access", access_text(holder));
        records.push_back(std::move(record));
    }
    return records;
}

std::string last_name_text(const UnlinkedEntry& entry) {
    const std::string name = entry.name.empty() ? "-" : entry.name;
    return entry.former() ? name + " (before it was resized)" : name;
}

// All objects that are unlinked but held: a line for each holder and object.
int print_unlinked(Context& context, bool exact_bytes) {
    std::vector<Record> records;
    Accounts accounts;
    Table table({">PID", "USER", "COMMAND", ">LEASES", "ACCESS", ">ID", ">SIZE", "DEVICE", "LAST NAME"});
    for (const auto& entry : context.unlinked()) {
        Record record;
        record.add("id", entry.info.id)
            .add("last_name", entry.name)
            .add("size_bytes", entry.info.size_bytes)
            .add("device", entry.info.device)
            .add("uid", entry.info.uid)
            .add("user", accounts.user(entry.info.uid))
            .add("former", entry.former())
            .add("holders", holder_records(entry.holders, accounts));
        records.push_back(std::move(record));
        for (const auto& holder : entry.holders) {
            auto cells = holder_cells(holder, accounts);
            cells.insert(cells.end(), {std::to_string(entry.info.id), size_text(entry.info.size_bytes, exact_bytes),
                                       entry.info.device, last_name_text(entry)});
            table.add_row(std::move(cells));
        }
    }
    if (context.json()) {
        Record record;
        record.add("unlinked", std::move(records));
        context.print(record);
    } else {
        context.print(table.text());
    }
    return 0;
}

}  // namespace

int cmd_holders(Context& context, const HoldersArgs& args) {
    if (!args.name) return print_unlinked(context, args.exact_bytes);
    Accounts accounts;
    const auto holders = check(context.client().holders(*args.name), *args.name);
    if (context.json()) {
        Record record;
        record.add("name", *args.name).add("holders", holder_records(holders, accounts));
        context.print(record);
        return 0;
    }
    Table table({">PID", "USER", "COMMAND", ">LEASES", "ACCESS"});
    for (const auto& holder : holders) table.add_row(holder_cells(holder, accounts));
    context.print(table.text());
    return 0;
}

}  // namespace gshm::cli
