#include "cli/outline.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace gshm::cli {
namespace {

// The words of the help for values, and what they stand for. Other words have no completion.
Values values_of(std::string_view word) {
    static const std::map<std::string_view, Values> kinds = {
        {"NAME", Values::object},     {"OLD", Values::object},    {"NEW", Values::object},
        {"PREFIX", Values::object},   {"DEVICE", Values::device}, {"FILE", Values::file},
        {"PATH", Values::file},       {"SOURCE", Values::file},   {"DIR", Values::folder},
        {"USER", Values::user},       {"GROUP", Values::group},   {"USER,@GROUP", Values::sharer},
        {"COMMAND", Values::command}, {"KEY", Values::attribute},
    };
    while (word.ends_with('.')) word.remove_suffix(1);
    const auto found = kinds.find(word);
    return found == kinds.end() ? Values::none : found->second;
}

Argument argument_of(const CLI::Option& option) {
    Argument argument;
    argument.text = option.get_description();
    argument.required = option.get_required();
    argument.repeats = option.get_items_expected_max() > 1;
    if (option.get_positional()) {
        argument.value = option.get_name(true);
    } else {
        for (const auto& letter : option.get_snames()) argument.flags.push_back("-" + letter);
        for (const auto& name : option.get_lnames()) argument.flags.push_back("--" + name);
        argument.value = option.get_type_name();
        if (option.get_items_expected_max() == 0) argument.value.clear();
    }
    for (const auto* other : option.get_excludes()) argument.excludes.push_back(other->get_name());
    std::ranges::sort(argument.excludes);
    std::string_view words = argument.value;
    while (!words.empty()) {
        const size_t space = words.find(' ');
        argument.values.push_back(values_of(words.substr(0, space)));
        words.remove_prefix(std::min(space == words.npos ? words.size() : space + 1, words.size()));
    }
    return argument;
}

// Paragraphs are separated by empty lines. A first line "Title:" begins a part.
std::vector<HelpPart> parts_of(std::string_view footer) {
    std::vector<HelpPart> parts;
    while (!footer.empty()) {
        const size_t end = std::min(footer.find("\n\n"), footer.size());
        std::string_view paragraph = footer.substr(0, end);
        footer.remove_prefix(std::min(end + 2, footer.size()));
        HelpPart part;
        const size_t line_end = std::min(paragraph.find('\n'), paragraph.size());
        if (line_end > 0 && paragraph[line_end - 1] == ':') {
            part.title = paragraph.substr(0, line_end - 1);
            paragraph.remove_prefix(std::min(line_end + 1, paragraph.size()));
        }
        part.text = paragraph;
        parts.push_back(std::move(part));
    }
    return parts;
}

Command command_of(const CLI::App& app) {
    Command command;
    command.name = app.get_name();
    command.text = app.get_description();
    for (const auto* option : app.get_options()) command.arguments.push_back(argument_of(*option));
    std::ranges::stable_partition(command.arguments, &Argument::is_positional);
    command.parts = parts_of(app.get_footer());
    return command;
}

}  // namespace

const Argument* Command::find(std::string_view flag) const {
    const auto found = std::ranges::find_if(arguments, [&](const Argument& argument) {
        return std::ranges::find(argument.flags, flag) != argument.flags.end();
    });
    return found == arguments.end() ? nullptr : &*found;
}

std::vector<const Argument*> Command::positionals() const {
    std::vector<const Argument*> found;
    for (const auto& argument : arguments)
        if (argument.is_positional()) found.push_back(&argument);
    return found;
}

const Command* Outline::find(std::string_view name) const {
    const auto found = std::ranges::find(commands, name, &Command::name);
    return found == commands.end() ? nullptr : &*found;
}

Outline outline() {
    Outline outline;
    inspect_command_line([&](const CLI::App& app) {
        outline.program = command_of(app);
        for (const auto* command : app.get_subcommands({})) outline.commands.push_back(command_of(*command));
    });
    return outline;
}

}  // namespace gshm::cli
