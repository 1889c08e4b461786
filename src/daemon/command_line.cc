#include "daemon/command_line.h"

#include <deque>
#include <filesystem>
#include <getopt.h>

#include "base/nearest.h"
#include "daemon/resource_names.h"
#include "device/kinds.h"

namespace gshm::core {
namespace {

constexpr std::string_view kUsage =
    R"(usage: gshmd [MOUNTPOINT]... [-f] [-d] [--dir DIR] [--device SPEC]... [--limit BYTES] [--takeover]

Owns GPU and host memory for every process on this machine. Goes to the background once it is ready to serve;
end it with `gshm shutdown` or SIGTERM. With a MOUNTPOINT the memory is there as files as well; unmounting it
(`gshm umount`, `fusermount3 -u`) ends the mount, not gshmd. `gshm mount DIR` mounts while gshmd runs.

Should gshmd be killed, gshm-keeper holds the memory. Start gshmd again, and all is there as it was: objects,
clients, the mounts, and these options of the command line where none are given now:
{kept}.

Each option but those marked with * is also a key of gshm.toml, with the same name and without the dashes. The
command line wins. A switch is set by --NAME and cleared by --NAME=false. `gshm reload` and SIGHUP read the file again.

)";
constexpr std::string_view kExitCodes = R"(
exit codes: 0 it ran (or is serving in the background), 1 it could not start, 2 wrong usage
)";
constexpr std::string_view kMountpoint = "mountpoint";
constexpr size_t kTextColumn = 22;

std::string replaced(std::string_view text, std::string_view name, std::string_view value) {
    std::string out(text);
    if (const size_t at = out.find(name); at != out.npos) out.replace(at, name.size(), value);
    return out;
}

// In lines, for the help.
std::string resources() {
    std::string names;
    size_t column = 0;
    for (const auto name : resource_names()) {
        column += name.size() + 2;
        if (!names.empty()) names += column > 60 ? ",\n" : ", ";
        if (column > 60) column = name.size();
        names += name;
    }
    return names;
}

std::string kept_options() {
    std::vector<std::string> names = {"--config"};  // keep_config()
    for (const auto& row : option_table()) {
        if (!row.kept_as.empty()) names.push_back(fmt::format("--{}", row.name));
    }
    std::string text;
    for (size_t i = 0; i < names.size(); ++i) {
        text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    }
    return text;
}

// "-f, --foreground", "    --dir DIR"
std::string flag_text(const Option& row) {
    std::string text = row.letter == 0 ? std::string(6, ' ') : fmt::format("  -{}, ", row.letter);
    text += fmt::format("--{}", row.name);
    if (!row.argument.empty()) text += fmt::format(" {}", row.argument);
    if (row.command_line_only) text += " *";
    return text;
}

// An option that was given once more: texts of a list and parts of a table are added, others replaced.
Status add(Settings& settings, const Option& row, std::string value) {
    std::string key(row.name);
    const std::string name = "--" + key;
    if (row.is_table()) {
        const size_t equals = value.find('=');
        if (equals == value.npos) return fail(EINVAL, "{}: '{}' is not {}", name, value, row.argument);
        key += "." + value.substr(0, equals);
        if (!Budgets::find(value.substr(0, equals))) {
            return fail(EINVAL, "{}: {}", name, unknown_resource(value.substr(0, equals)));
        }
        value.erase(0, equals + 1);
    }
    // gshmd changes its working directory.
    if (row.is_path && !value.empty()) value = std::filesystem::absolute(value).string();
    auto& setting = settings[key];
    if (!row.is_list()) setting.values.clear();
    setting.values.push_back(std::move(value));
    setting.source = Setting::Source::command_line;
    setting.place = name;
    Options checked;
    return set_option(checked, find_key(key), name, setting.values);
}

Error unknown_option(std::string_view argument) {
    std::vector<std::string_view> names;
    for (const auto& row : option_table()) names.push_back(row.name);
    const auto word = argument.substr(0, argument.find('='));
    const auto hint = word.starts_with("--") ? nearest_hint(word.substr(2), names, "--") : std::string();
    return {EINVAL, fmt::format("unknown option {}{}", word, hint.empty() ? "; see gshmd --help" : hint)};
}

}  // namespace

Result<Settings> parse_command_line(int argc, char** argv) {
    constexpr int kFirst = 256;
    const auto rows = option_table();
    std::deque<std::string> names;  // NUL-terminated, at fixed addresses
    std::vector<option> flags;
    std::string letters = ":";
    for (size_t i = 0; i < rows.size(); ++i) {
        const int argument = rows[i].is_switch() ? optional_argument : required_argument;
        flags.push_back({names.emplace_back(rows[i].name).c_str(), argument, nullptr, kFirst + static_cast<int>(i)});
        if (rows[i].letter != 0) letters += rows[i].letter;
    }
    flags.push_back({});
    opterr = 0;
    Settings settings;
    int choice = 0;
    for (;;) {
        const int at = optind;
        choice = getopt_long(argc, argv, letters.c_str(), flags.data(), nullptr);
        if (choice == -1) break;
        if (choice == ':') return fail(EINVAL, "{} needs a value; see gshmd --help", argv[optind - 1]);
        if (choice == '?') {
            if (optopt >= kFirst) {
                return fail(EINVAL, "--{} takes no value", rows[static_cast<size_t>(optopt - kFirst)].name);
            }
            return std::unexpected(unknown_option(optopt != 0 ? fmt::format("-{}", static_cast<char>(optopt))
                                                              : argv[std::max(at, optind - 1)]));
        }
        const Option* row = nullptr;
        if (choice >= kFirst) row = &rows[static_cast<size_t>(choice - kFirst)];
        for (const auto& other : rows) {
            if (row == nullptr && other.letter != 0 && other.letter == choice) row = &other;
        }
        TRY(add(settings, *row, optarg == nullptr ? "true" : optarg));
    }
    while (optind < argc) TRY(add(settings, *find_option(kMountpoint), argv[optind++]));
    return settings;
}

std::string help_text() {
    std::string text = replaced(kUsage, "{kept}", kept_options());
    for (const auto& row : option_table()) {
        std::string line = flag_text(row);
        const std::string indent = "\n" + std::string(kTextColumn, ' ');
        if (line.size() + 1 >= kTextColumn) line += indent;
        else line.append(kTextColumn - line.size(), ' ');
        std::string help =
            replaced(replaced(row.help, "{devices}", device_spec_examples()), "{resources}", resources());
        for (size_t at = 0; (at = help.find('\n', at)) != help.npos; at += indent.size()) help.replace(at, 1, indent);
        text += line + help + "\n";
    }
    return text + std::string(kExitCodes);
}

}  // namespace gshm::core
