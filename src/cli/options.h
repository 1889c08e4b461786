// Parses the command line. No other file depends on CLI11.
#pragma once

#include <functional>
#include <string>

namespace gshm::cli {

class Context;

struct CommandLine {
    std::string dir;  // empty: the default folder
    bool json = false;
    std::string text;                      // help or version: the program only prints this
    std::function<int(Context&)> command;  // empty if there is text
};

// Throws a usage Failure.
CommandLine parse_command_line(int argc, const char* const* argv);

// Whether --json is among the arguments, for errors of a command line that cannot be parsed.
bool wants_json(int argc, const char* const* argv);

}  // namespace gshm::cli
