// Parses the command line. Only this file's source and outline.cc depend on CLI11.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

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

// Calls `inspect` with all commands and options. The app is valid during the call.
void inspect_command_line(const std::function<void(const CLI::App&)>& inspect);

// Whether --json is among the arguments, for errors of a command line that cannot be parsed.
bool wants_json(int argc, const char* const* argv);

}  // namespace gshm::cli
