#include <cerrno>
#include <optional>

#include "cli/commands.h"
#include "cli/support/attributes.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"

namespace gshm::cli {

namespace {

StatInfo stat(Context& context, const std::string& name) {
    auto found = context.client().stat(name);
    if (found) return *std::move(found);
    // The usual hint for EACCES is this command.
    throw Failure::of_error(found.error(), name,
                            found.error().code == EACCES ? "you may not search its directory" : "");
}

// nullopt: they may not be read. Mode, owner and size are shown nevertheless.
std::optional<std::vector<Attribute>> find_attributes(Context& context, const std::string& name) {
    auto found = context.client().attributes(name);
    if (!found && found.error().code == EACCES) return std::nullopt;
    return check(std::move(found), name);
}

}  // namespace

int cmd_stat(Context& context, const NamesArgs& args) {
    std::vector<Record> records;
    std::string text;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info = stat(context, name);
        std::optional<std::vector<Attribute>> attributes;  // null: not readable
        if (info.kind == GSHM_KIND_OBJECT) attributes = find_attributes(context, name);
        if (context.json()) {
            auto record = stat_record(name, info);
            std::vector<Record> list;
            if (attributes) {
                for (const auto& attribute : *attributes) list.push_back(attribute_record(attribute));
                record.add("attributes", std::move(list));
            }
            records.push_back(std::move(record));
        } else {
            text += (text.empty() ? "" : "\n") + stat_text(name, info, attributes.value_or(std::vector<Attribute>()));
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
