#include <charconv>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/attributes.h"
#include "cli/support/context.h"
#include "cli/support/table.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

std::string from_hex(std::string_view text) {
    const auto digits = text.substr(text.starts_with("0x") ? 2 : 0);
    std::string bytes;
    for (size_t i = 0; i < digits.size(); i += 2) {
        unsigned value = 0;
        const auto pair = digits.substr(i, 2);
        const auto [end, error] = std::from_chars(pair.data(), pair.data() + pair.size(), value, 16);
        if (pair.size() != 2 || error != std::errc{} || end != pair.data() + 2)
            throw Failure::usage(printable(text) + " is not hex: write two digits for each byte");
        bytes += static_cast<char>(value);
    }
    return bytes;
}

void show_all(Context& context, const std::string& name) {
    const auto attributes = get_attributes(context, name);
    if (context.json()) {
        std::vector<Record> list;
        for (const auto& attribute : attributes) list.push_back(attribute_record(attribute));
        Record record;
        record.add("name", name).add("attributes", std::move(list));
        context.print(record);
        return;
    }
    Table table({"KEY", ">BYTES", "VALUE"});
    for (const auto& [key, value] : attributes)
        table.add_row({key, std::to_string(value.size()), attribute_text(value)});
    context.print(table.text());
}

// Writes the raw bytes to a pipe or a file. On a terminal, text is printed as it is and other bytes in hex.
void show_one(Context& context, const std::string& name, const Attribute& attribute) {
    if (context.json()) {
        Record record;
        record.add("name", name).add("attributes", std::vector{attribute_record(attribute)});
        context.print(record);
    } else if (::isatty(STDOUT_FILENO)) {
        context.print((is_text(attribute.value) ? attribute.value : "0x" + hex_text(attribute.value)) + '\n');
    } else {
        context.print(attribute.value);
    }
}

void show_change(Context& context, const std::string& name, const char* what, const std::string& key) {
    if (!context.json()) return;
    Record record;
    record.add("name", name).add(what, key);
    context.print(record);
}

}  // namespace

int cmd_attr(Context& context, const AttrArgs& args) {
    if (args.remove && (!args.key || args.value)) throw Failure::usage("attr -d takes a NAME and a KEY");
    if (args.hex && !args.value) throw Failure::usage("attr --hex takes a NAME, a KEY and a VALUE");
    if (!args.key) {
        show_all(context, args.name);
    } else if (args.remove) {
        check(context.client().remove_attribute(args.name, *args.key), args.name);
        show_change(context, args.name, "removed", *args.key);
    } else if (args.value) {
        const auto value = args.hex ? from_hex(*args.value) : *args.value;
        auto set = context.client().set_attribute(args.name, *args.key, value);
        if (!set && set.error().code == ENOSPC)
            throw Failure::of_error(set.error(), args.name, "`gshm attr -d` removes others");
        check(std::move(set), args.name);
        show_change(context, args.name, "set", *args.key);
    } else {
        show_one(context, args.name, {*args.key, check(context.client().attribute(args.name, *args.key), args.name)});
    }
    return 0;
}

}  // namespace gshm::cli
