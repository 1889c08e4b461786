#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/text.h"

namespace gshm::cli {

int cmd_reload(Context& context) {
    const auto changes = check(context.client().reload(), {});
    std::vector<Record> records;
    std::string text;
    for (const auto& change : changes) {
        const bool waits = (change.flags & GSHM_OPTION_NEEDS_RESTART) != 0;
        Record record;
        record.add("option", change.option)
            .add("former", change.former)
            .add("value", change.value)
            .add("needs_restart", waits);
        records.push_back(std::move(record));
        text += fmt::format("{}: {} -> {}{}\n", change.option, printable(change.former), printable(change.value),
                            waits ? ", needs a restart (`gshmd --takeover` keeps all objects)" : "");
    }
    if (context.json()) {
        Record record;
        record.add("changes", std::move(records));
        context.print(record);
    } else {
        context.print(text.empty() ? "nothing has changed\n" : text);
    }
    return 0;
}

}  // namespace gshm::cli
