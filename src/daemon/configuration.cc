#include "daemon/configuration.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/log.h"
#include "base/runtime_dir.h"
#include "daemon/config_file.h"
#include "daemon/device_set.h"
#include "daemon/kept_config.h"
#include "daemon/tier_specs.h"
#include "http/server.h"

namespace gshm::core {
namespace {

constexpr std::string_view kEarlier = "the command line of an earlier gshmd";

// The value of "--config=x" alone, which decides which file is read.
std::string config_of(const Settings& command_line) {
    const auto found = command_line.find("config");
    return found == command_line.end() ? std::string() : found->second.values.at(0);
}

}  // namespace

Result<Configuration> Configuration::create(Settings command_line) {
    Configuration made;
    made.command_line_ = std::move(command_line);
    made.find_file();
    TRY(made.read_file());
    TRY(made.merge());
    TRY(made.recall_file());
    return made;
}

void Configuration::find_file() {
    const std::string named = config_of(command_line_);
    const char* of_environment = getenv("GSHM_CONFIG");
    is_named_ = !named.empty() || (of_environment != nullptr && *of_environment != '\0');
    path_ = named.empty() ? default_config_file() : named;
    if (path_ == kNoConfigFile) path_.clear();
    if (!path_.empty()) path_ = std::filesystem::absolute(path_).string();
}

Status Configuration::recall_file() {
    if (is_named_ || options_.check_config || options_.discard) return {};
    const std::string kept = kept_config(options_.dir);
    if (kept.empty()) return {};
    is_named_ = true;
    path_ = kept == kNoConfigFile ? std::string() : kept;
    dir_ = options_.dir;
    auto read = read_file();
    if (read) read = merge();
    if (read) return {};
    return fail(
        read.error().code,
        "{} (the gshmd before this one at {} was started with --config {}; name another file with --config FILE, "
        "or --config none)",
        read.error().message, dir_, kept);
}

std::string Configuration::kept_file() const {
    if (!is_named_) return {};
    return path_.empty() ? std::string(kNoConfigFile) : path_;
}

Status Configuration::read_file() {
    file_.clear();
    file_settings_.clear();
    if (path_.empty()) return {};
    auto settings = read_config_file(path_);
    // Only a file that was asked for must be there.
    if (!settings && settings.error().code == ENOENT && !is_named_) return {};
    file_settings_ = TRY(std::move(settings));
    file_ = path_;
    return {};
}

Status Configuration::merge() {
    merged_ = file_settings_;
    for (const auto& [key, setting] : command_line_) merged_.insert_or_assign(key, setting);
    // A limit belongs to the devices that it bounds: the two are recalled together or not at all.
    const bool other_devices = merged_.contains("device") || merged_.contains("limit");
    for (const auto& [key, setting] : kept_) {
        if (other_devices && (key == "device" || key == "limit")) continue;
        merged_.try_emplace(key, setting);
    }
    Options options;
    for (const auto& [key, setting] : merged_) {
        TRY(set_option(options, find_key(key), setting.place, setting.values));
    }
    options.protocols = TRY(wire::own_protocols());
    options_ = std::move(options);
    if (!dir_.empty()) options_.dir = dir_;
    TRY(check());
    if (options_.dir.empty()) {
        auto dir = default_runtime_dir();
        if (!dir && !options_.check_config) return fail(EINVAL, "{}", dir.error().message);
        if (dir) options_.dir = std::move(*dir);
    }
    if (!options_.dir.empty()) options_.dir = std::filesystem::absolute(options_.dir).string();
    return {};
}

// What the rows cannot check alone.
Status Configuration::check() const {
    if (options_.takeover + options_.discard + options_.salvage > 1) {
        return fail(EINVAL, "--takeover, --discard and --salvage exclude each other");
    }
    if (options_.takeover && options_.keeper != "process") {
        return fail(EINVAL, "--takeover goes with gshm-keeper alone, not with --keeper {}", options_.keeper);
    }
    if (auto parsed = parse_tiers(options_.tiers); !parsed) {
        const auto& tier = merged_.at("tier");
        const bool usage = tier.source == Setting::Source::command_line;
        return fail(usage ? EINVAL : EBADMSG, "{}: {}", tier.place, parsed.error().message);
    }
    for (auto one = options_.metrics.begin(); one != options_.metrics.end(); ++one) {
        const auto again = std::find_if(std::next(one), options_.metrics.end(),
                                        [&](const auto& other) { return http::are_one_address(*one, other); });
        if (again == options_.metrics.end()) continue;
        const auto& metrics = merged_.at("metrics");
        const bool usage = metrics.source == Setting::Source::command_line;
        return fail(usage ? EINVAL : EBADMSG, "{}: '{}' and '{}' are one address", metrics.place, *one, *again);
    }
    for (const auto& device : options_.devices) {
        if (auto checked = DeviceSet::check_spec(device); !checked)
            return fail(ENODEV, "{}: {}", merged_.at("device").place, checked.error().message);
    }
    return {};
}

void Configuration::recall(const std::function<std::string(std::string_view name)>& setting) {
    for (const auto& row : option_table()) {
        if (row.kept_as.empty()) continue;
        std::vector<std::string> values;
        std::istringstream lines(setting(row.kept_as));
        for (std::string line; std::getline(lines, line);) values.push_back(line);
        // A gshmd of 0.1 kept 0 for none.
        if (values.empty() || (!row.is_list() && row.least > 0 && values[0] == "0")) continue;
        Options checked;
        if (auto set = set_option(checked, {&row, {}}, row.name, values); !set) {
            log_warning("an option of the earlier gshmd is ignored: {}", set.error().message);
            continue;
        }
        kept_[std::string(row.name)] = {std::move(values), Setting::Source::kept, std::string(kEarlier)};
    }
    if (auto merged = merge(); !merged) {
        log_warning("the options of the earlier gshmd are ignored: {}", merged.error().message);
        kept_.clear();
        (void)merge();  // as before the call
    }
}

std::vector<std::pair<std::string, std::string>> Configuration::kept() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& row : option_table()) {
        if (row.kept_as.empty()) continue;
        std::string lines;
        const auto found = merged_.find(row.name);
        if (found != merged_.end() && found->second.source != Setting::Source::file) {
            for (const auto& value : found->second.values) lines += value + "\n";
        }
        all.emplace_back(row.kept_as, std::move(lines));
    }
    return all;
}

Result<Configuration> Configuration::read_again() const {
    Configuration next = *this;
    TRY(next.read_file());
    TRY(next.merge());
    return next;
}

std::vector<OptionChange> Configuration::changes(const Configuration& next) const {
    const auto former = option_values(options_);
    std::vector<OptionChange> all;
    for (const auto& [key, value] : option_values(next.options_)) {
        const auto& before = former.at(key);
        if (before == value) continue;
        const Option& row = *find_key(key).option;
        const bool applies = row.apply != nullptr && (row.applies == nullptr || row.applies(options_, next.options_));
        all.push_back({&row, key, value_text(row, before), value_text(row, value), !applies});
    }
    return all;
}

std::vector<const Option*> Configuration::take(const Configuration& next) {
    std::vector<const Option*> rows;
    for (const auto& change : changes(next)) {
        if (change.needs_restart) continue;
        std::visit([&](auto member) { options_.*member = next.options_.*member; }, change.option->member);
        if (std::ranges::find(rows, change.option) == rows.end()) rows.push_back(change.option);
    }
    command_line_ = next.command_line_;
    file_settings_ = next.file_settings_;
    merged_ = next.merged_;
    file_ = next.file_;
    return rows;
}

std::string Configuration::text() const {
    std::string text = file_.empty() ? "# no gshm.toml is read\n" : fmt::format("# with {}\n", file_);
    std::string tables;  // they end the keys at the top
    const auto values = option_values(options_);
    for (const auto& row : option_table()) {
        if (row.command_line_only) continue;
        std::string section;
        for (const auto& [key, value] : values) {
            const auto [option, part] = find_key(key);
            if (option != &row) continue;
            const auto found = merged_.find(key);
            const std::string source = found == merged_.end() ? "default" : found->second.place;
            const std::string_view name = row.is_table() ? part : std::string_view(key);
            const std::string written = toml_text(row, value);
            section += written.empty() ? fmt::format("# {}: {}  # {}\n", name, value_text(row, value), source)
                                       : fmt::format("{} = {}  # {}\n", name, written, source);
        }
        if (row.is_table()) tables += fmt::format("\n[{}]\n{}", row.name, section);
        else text += section;
    }
    return text + tables;
}

}  // namespace gshm::core
