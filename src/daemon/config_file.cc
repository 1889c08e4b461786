#include "daemon/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/fd.h"
#include "base/nearest.h"
#include "daemon/resource_names.h"

namespace gshm::core {
namespace {

// An error at a place of the file.
struct Offence {
    toml::source_position at;
    std::string message;
};

class Reader {
public:
    explicit Reader(const std::string& path) : path_(path) {}

    Result<Settings> read(const toml::table& file) {
        for (const auto& [key, node] : file) read_key(key, node);
        if (!first_) return std::move(settings_);
        return fail(EBADMSG, "{}: {}", place(first_->at), first_->message);
    }

private:
    std::string place(const toml::source_position& at) const {
        return fmt::format("{}:{}:{}", path_, at.line, at.column);
    }
    // The first one in the file is reported; the table is sorted by name.
    void offend(const toml::source_region& at, std::string message) {
        if (!first_ || at.begin < first_->at) first_ = Offence{at.begin, std::move(message)};
    }
    void read_key(const toml::key& key, const toml::node& node) {
        const Option* row = find_option(key.str());
        if (row == nullptr || row->command_line_only) return offend(key.source(), unknown(key.str(), node, row));
        if (!row->is_table()) return add(*row, std::string(row->name), key, node);
        const auto* table = node.as_table();
        if (table == nullptr) {
            return offend(node.source(), fmt::format("{0}: a table is needed, such as [{0}]", row->name));
        }
        for (const auto& [part, value] : *table) {
            if (Budgets::find(part.str())) {
                add(*row, fmt::format("{}.{}", row->name, part.str()), part, value);
            } else {
                offend(part.source(), fmt::format("{}: {}", row->name, unknown_resource(part.str())));
            }
        }
    }
    static std::string unknown(std::string_view key, const toml::node& node, const Option* row) {
        if (row != nullptr) return fmt::format("\"{0}\" is an option of the command line only (--{0})", key);
        std::string hint = nearest_hint(key, option_keys());
        if (node.is_table() && hint.empty()) hint = "; keys are at the top of the file, in no section but [budgets]";
        if (hint.empty()) hint = "; `gshmd --help` lists the options, which are the keys";
        return fmt::format("unknown key \"{}\"{}", key, hint);
    }

    void add(const Option& row, std::string key, const toml::key& name, const toml::node& node) {
        Setting setting{{}, Setting::Source::file, place(name.source().begin)};
        if (const auto* texts = node.as_array(); texts != nullptr && row.is_list()) {
            for (const auto& element : *texts) {
                auto text = text_of(row, element);
                if (!text) return offend(element.source(), fmt::format("{}: {}", key, text.error().message));
                setting.values.push_back(std::move(*text));
            }
        } else {
            auto text = text_of(row, node);
            if (!text) return offend(node.source(), fmt::format("{}: {}", key, text.error().message));
            setting.values.push_back(std::move(*text));
        }
        for (const auto& value : setting.values) {
            if (row.is_path && !value.starts_with('/'))
                return offend(node.source(), fmt::format("{}: \"{}\" is not an absolute path", key, value));
        }
        Options checked;
        if (auto set = set_option(checked, find_key(key), key, setting.values); !set)
            return offend(node.source(), set.error().message);
        settings_.insert_or_assign(std::move(key), std::move(setting));
    }

    // The value as on the command line.
    static Result<std::string> text_of(const Option& row, const toml::node& node) {
        const bool sized = row.is_size() || row.is_table();
        if (const auto* flag = node.as_boolean(); flag != nullptr && row.is_switch())
            return flag->get() ? "true" : "false";
        if (const auto* number = node.as_integer(); number != nullptr && (row.is_number() || sized))
            return std::to_string(number->get());
        if (const auto* text = node.as_string(); text != nullptr && !row.is_switch() && !row.is_number())
            return text->get();
        const char* wanted = row.is_switch()   ? "true or false is needed"
                             : row.is_number() ? "a number is needed"
                             : sized           ? "a size is needed, such as 1048576 or \"64M\""
                             : row.is_list()   ? "a text or a list of texts is needed, such as [\"a\", \"b\"]"
                                               : "a text is needed";
        return fail(EINVAL, "{}", wanted);
    }

    const std::string& path_;
    Settings settings_;
    std::optional<Offence> first_;
};

constexpr size_t kMostBytes = 1 << 20;

// What another user wrote would be obeyed with the rights of gshmd. The file itself is checked, not its folders: whoever
// may replace it there can only put files of root or of gshmd's own user in its place.
Status check_rights(const std::string& path, const struct stat& status) {
    if (!S_ISREG(status.st_mode)) return fail(EPERM, "{} is not a regular file", path);
    if (status.st_uid != 0 && status.st_uid != geteuid()) {
        return fail(EPERM, "{} belongs to another user (uid {}), so gshmd does not obey it: chown {} {}", path,
                    status.st_uid, geteuid(), path);
    }
    if ((status.st_mode & 022) == 0) return {};
    return fail(EPERM, "others may write to {}, so gshmd does not obey it: chmod go-w {}", path, path);
}

}  // namespace

std::string default_config_file() {
    auto set = [](const char* name) {
        const char* value = getenv(name);
        return std::string(value == nullptr ? "" : value);
    };
    if (auto file = set("GSHM_CONFIG"); !file.empty()) return file;
    if (geteuid() == 0) return "/etc/gshm/gshm.toml";
    // Relative paths are ignored: XDG Base Directory Specification.
    if (auto folder = set("XDG_CONFIG_HOME"); folder.starts_with('/')) return folder + "/gshm/gshm.toml";
    if (auto home = set("HOME"); home.starts_with('/')) return home + "/.config/gshm/gshm.toml";
    return {};
}

Result<Settings> parse_config(std::string_view text, const std::string& path) {
    const auto parsed = toml::parse(text, path);
    if (!parsed) {
        const auto& error = parsed.error();
        const auto& at = error.source().begin;
        return fail(EBADMSG, "{}:{}:{}: {}", path, at.line, at.column, error.description());
    }
    return Reader(path).read(parsed.table());
}

Result<Settings> read_config_file(const std::string& path) {
    // A look without opening: a FIFO would block, and a device may act.
    auto found = UniqueFd::adopt(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status = {};
    if (!found || fstat(found.get(), &status) != 0) return fail(ENOENT, "cannot find {}: {}", path, strerror(errno));
    TRY(check_rights(path, status));
    auto file = UniqueFd::adopt(open(fmt::format("/proc/self/fd/{}", found.get()).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return fail(EPERM, "cannot read {}: {}", path, strerror(errno));
    std::string text;
    char block[65536];
    ssize_t got = 0;
    while ((got = read(file.get(), block, sizeof block)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(EIO, "cannot read {}: {}", path, strerror(errno));
        text.append(block, static_cast<size_t>(got));
        if (text.size() > kMostBytes) return fail(EBADMSG, "{} is larger than 1 MiB, so it is no gshm.toml", path);
    }
    return parse_config(text, path);
}

}  // namespace gshm::core
