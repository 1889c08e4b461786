#include "manual/completions.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "daemon/option_table.h"
#include "daemon/resource_names.h"

namespace gshm::manual {
namespace {

constexpr std::string_view kHead = "# Completions of gshmd, made by the build from the table of its options.\n";

struct Flag {
    std::string name;      // "--keeper"
    std::string letter;    // "-d"; "": none
    std::string text;      // one line
    std::string argument;  // "KIND"; "": a switch
    std::string words;     // values, separated by spaces
    bool file = false;
    bool folder = false;
};

// The help up to a bracket, a semicolon or a colon, in one line.
std::string first_part(std::string_view help) {
    std::string text(help.substr(0, help.find_first_of("(;:{")));
    std::ranges::replace(text, '\n', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

std::vector<Flag> flags() {
    std::vector<Flag> flags;
    for (const auto& row : core::option_table()) {
        Flag flag;
        flag.name = fmt::format("--{}", row.name);
        if (row.letter != 0) flag.letter = fmt::format("-{}", row.letter);
        flag.text = first_part(row.help);
        flag.argument = row.argument;
        flag.folder = row.argument == "DIR" || row.name == "tier";
        flag.file = row.argument == "FILE";
        if (row.name == "keeper") flag.words = "process systemd none";
        if (row.name == "device") flag.words = "cuda host";
        if (row.name == "tier") flag.words = "host: none";
        if (row.is_table())
            for (const auto name : core::resource_names()) flag.words += fmt::format("{}= ", name);
        while (flag.words.ends_with(' ')) flag.words.pop_back();
        flags.push_back(std::move(flag));
    }
    return flags;
}

// Within single quotes of a shell. The texts are those of the table: no input.
std::string in_quotes(std::string_view text, std::string_view escaped_too = "") {
    std::string out;
    for (const char letter : text) {
        if (letter == '\'') out += "'\\''";
        else {
            if (escaped_too.contains(letter)) out += '\\';
            out += letter;
        }
    }
    return out;
}

std::string bash_text() {
    std::string all;
    std::string cases;
    for (const auto& flag : flags()) {
        all += (all.empty() ? "" : " ") + flag.name;
        if (flag.argument.empty()) continue;
        std::string action;
        if (!flag.words.empty())
            action += fmt::format("mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\"); ", flag.words);
        if (flag.file) action += "compopt -o default; ";
        if (flag.folder) action += "compopt -o dirnames; ";
        if (flag.words.ends_with('=')) action += "compopt -o nospace; ";
        cases += fmt::format("        {}) {}return ;;\n", flag.name, action);
    }
    return std::string(kHead) + fmt::format(R"(_gshmd() {{
    local word=$2 option=$3
    COMPREPLY=()
    # readline splits "--keeper=none" at the equals sign
    if [[ $word == '=' ]]; then word=; fi
    if [[ $option == '=' ]]; then option=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
    case $option in
{}    esac
    if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W '{}' -- "$word")
    else compopt -o dirnames; fi
}}
complete -F _gshmd gshmd
)",
                                            cases, all);
}

std::string zsh_text() {
    std::string lines;
    for (const auto& flag : flags()) {
        std::string value;
        if (!flag.argument.empty()) {
            value = fmt::format(":{}:", in_quotes(flag.argument, ":"));
            if (flag.file) value += "_files";
            else if (flag.folder && flag.words.empty()) value += "_files -/";
            else if (flag.folder) value += fmt::format("{{compadd -S \"\" -- {}; _files -/}}", flag.words);
            else if (flag.words.ends_with('=')) value += fmt::format("{{compadd -S \"\" -- {}}}", flag.words);
            else if (!flag.words.empty()) value += fmt::format("({})", flag.words);
        }
        const auto line = [&](std::string_view name, std::string_view mark) {
            lines += fmt::format("    '*{}{}[{}]{}' \\\n", name, mark, in_quotes(flag.text, "[]\\"), value);
        };
        line(flag.name, flag.argument.empty() ? "" : "=");
        if (!flag.letter.empty()) line(flag.letter, "");
    }
    return fmt::format("#compdef gshmd\n{}_arguments \\\n{}    '*:MOUNTPOINT:_files -/'\n", kHead, lines);
}

std::string fish_text() {
    std::string text(kHead);
    text += "complete -c gshmd -f -a '(__fish_complete_directories (commandline -ct) \"\")'\n";
    for (const auto& flag : flags()) {
        std::string line = fmt::format("complete -c gshmd -l {} -d '{}'", flag.name.substr(2), in_quotes(flag.text));
        if (!flag.letter.empty()) line += fmt::format(" -s {}", flag.letter.substr(1));
        if (!flag.argument.empty()) line += flag.file ? " -r -F" : " -x";
        std::string values = flag.words;
        if (flag.folder) values += R"( (__fish_complete_directories (commandline -ct) ""))";
        if (!values.empty()) line += fmt::format(" -a '{}'", values);
        text += line + "\n";
    }
    return text;
}

}  // namespace

void add_daemon_completions(Pages& files) {
    files["gshmd.bash"] = bash_text();
    files["_gshmd"] = zsh_text();
    files["gshmd.fish"] = fish_text();
}

}  // namespace gshm::manual
