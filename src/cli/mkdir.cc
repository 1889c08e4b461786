// gshm mkdir: directories that stay when they are empty.
#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/text.h"

namespace gshm::cli {

int cmd_mkdir(Context& context, const MkdirArgs& args) {
    std::vector<Record> records;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        check(context.client().make_directory(name, args.mode), name);
        if (!context.json()) return;
        const auto info = context.stat(name);
        Record record;
        record.add("name", name).add("mode", mode_text(info.mode));
        records.push_back(std::move(record));
    });
    if (context.json()) {
        Record record;
        record.add("made", std::move(records));
        context.print(record);
    }
    return exit_code;
}

}  // namespace gshm::cli
