#include "cli/commands.h"
#include "cli/support/context.h"

namespace gshm::cli {

int cmd_seal(Context& context, const NamesArgs& args) {
    std::vector<std::string> sealed;
    const int exit_code = context.for_each(args.names, [&](const std::string& name) {
        check(context.client().seal(name), name);
        sealed.push_back(name);
    });
    if (context.json()) {
        Record record;
        record.add("sealed", std::move(sealed));
        context.print(record);
    }
    return exit_code;
}

}  // namespace gshm::cli
