#include "cli/commands.h"
#include "cli/support/attributes.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"

namespace gshm::cli {

int cmd_stat(Context& context, const NamesArgs& args) {
    std::vector<Record> records;
    std::string text;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info = context.stat(name);
        std::vector<Attribute> attributes;
        if (info.kind == GSHM_KIND_OBJECT) attributes = get_attributes(context, name);
        if (context.json()) {
            auto record = stat_record(name, info);
            std::vector<Record> list;
            for (const auto& attribute : attributes) list.push_back(attribute_record(attribute));
            if (info.kind == GSHM_KIND_OBJECT) record.add("attributes", std::move(list));
            records.push_back(std::move(record));
        } else {
            text += (text.empty() ? "" : "\n") + stat_text(name, info, attributes);
        }
    });
    if (context.json()) {
        Record record;
        record.add("objects", std::move(records));
        context.print(record);
    } else {
        context.print(text);
    }
    return exit_code;
}

}  // namespace gshm::cli
