// The command line, read. The only place that knows the library that reads it.
#pragma once

#include <functional>
#include <string>

namespace gshm::cli {

class Context;

struct CommandLine {
    std::string dir;  // empty: the default one
    bool json = false;
    std::string text;                      // help or version: print this, and nothing else is to do
    std::function<int(Context&)> command;  // empty if there is text
};

// Throws a usage Failure.
CommandLine parse_command_line(int argc, const char* const* argv);

// Whether --json is among the arguments: for the errors of a command line that cannot be read.
bool wants_json(int argc, const char* const* argv);

}  // namespace gshm::cli
