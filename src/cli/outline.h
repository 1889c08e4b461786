// The commands and options of gshm as data: the manual pages and the completions of shells are made from it.
#pragma once

#include <string>
#include <vector>

namespace gshm::cli {

// What an argument is, for completions.
enum class Values { none, object, device, file, folder, user, group, sharer, command, attribute };

struct Argument {
    std::vector<std::string> flags;  // "-r", "--recursive"; empty: a positional
    std::string value;               // "SIZE", "SOURCE... NAME"; "": a switch
    std::string text;
    bool required = false;
    bool repeats = false;
    std::vector<std::string> excludes;  // "--ttl"
    std::vector<Values> values;         // of a positional that stands for several arguments, one for each

    bool is_positional() const { return flags.empty(); }
    bool is_switch() const { return !is_positional() && value.empty(); }
};

// A part of the text below the options: "Exit codes", "Example". The first part has no title.
struct HelpPart {
    std::string title;
    std::string text;  // lines as in --help
};

struct Command {
    std::string name;  // "gshm" for the program itself
    std::string text;
    std::vector<Argument> arguments;  // in the order of --help, positionals first
    std::vector<HelpPart> parts;

    const Argument* find(std::string_view flag) const;
    std::vector<const Argument*> positionals() const;
};

struct Outline {
    Command program;  // its options are valid for all commands
    std::vector<Command> commands;

    const Command* find(std::string_view name) const;
};

Outline outline();

}  // namespace gshm::cli
