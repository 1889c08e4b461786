// The options of gshmd, one row each. The flags of the command line, --help, the keys of gshm.toml, --check-config and
// the changes that `gshm reload` makes follow from the rows: a new option is a member of Options and a row.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/store_lock.h"
#include "daemon/options.h"

namespace gshm::core {

class Server;

struct Option {
    // The type is that of the values: a switch, a number, a size in bytes, a text, texts, or a total for each resource.
    using Member = std::variant<bool Options::*, unsigned Options::*, uint64_t Options::*, std::string Options::*,
                                std::vector<std::string> Options::*, Budgets::Totals Options::*>;

    std::string_view name;  // of the flag, without its dashes, and of the key
    Member member;
    std::string_view argument = "";  // in the help: "PERCENT"; none for a switch
    std::string_view help;           // lines are broken at '\n'; {devices} stands for examples of devices
    char letter = 0;                 // of a short flag
    bool command_line_only = false;  // not a key of gshm.toml
    bool is_path = false;            // made absolute; in gshm.toml it must be
    uint64_t least = 1;              // of a number or a size
    uint64_t most = UINT64_MAX;
    std::string_view default_text = "";  // the meaning of the default, if that is not a value to be set
    // The setting of the catalog that keeps the value of the command line for the next gshmd, should this one be killed.
    std::string_view kept_as = "";
    // EINVAL: not a value. For each of the texts; the message does not name the option.
    Status (*check)(std::string_view value) = nullptr;
    // Gives a running gshmd the values: called once at the start, before clients are served, and by each reload that
    // changes the option. Under the store lock. Null: a change needs a restart.
    void (*apply)(Server& server, const Options& options) = nullptr;
    // Whether apply() is enough for this change; null: always.
    bool (*applies)(const Options& from, const Options& to) = nullptr;

    bool is_switch() const { return std::holds_alternative<bool Options::*>(member); }
    bool is_list() const { return std::holds_alternative<std::vector<std::string> Options::*>(member); }
    bool is_number() const { return std::holds_alternative<unsigned Options::*>(member); }
    bool is_size() const { return std::holds_alternative<uint64_t Options::*>(member); }
    // One value for each resource: "leases=1000" on the command line, a table in gshm.toml.
    bool is_table() const { return std::holds_alternative<Budgets::Totals Options::*>(member); }
};

// In the order of the help.
std::span<const Option> option_table();
// Null: there is none.
const Option* find_option(std::string_view name);
// The names of keys that gshm.toml may have.
std::vector<std::string_view> option_keys();

// ---- values as text, by key: "staging", "budgets.leases" ----
struct Setting {
    enum class Source { kept, file, command_line };
    std::vector<std::string> values;  // several for a list alone
    Source source = Source::command_line;
    std::string place;  // "--staging", "/etc/gshm/gshm.toml:3:1", "an earlier gshmd"
};
using Settings = std::map<std::string, Setting, std::less<>>;

// The row of a key, and the resource of a table; none: null.
struct OptionKey {
    const Option* option = nullptr;
    std::string_view part;  // "leases"
};
OptionKey find_key(std::string_view key);

// Checks and sets an option. `name` is its name in messages. EINVAL: a value is wrong.
Status set_option(Options& options, const OptionKey& key, std::string_view name,
                  const std::vector<std::string>& values);

// The values of an option as canonical texts, by key.
struct OptionValue {
    std::vector<std::string> values;
    bool is_default = false;
    bool operator==(const OptionValue& other) const { return values == other.values; }
};
std::map<std::string, OptionValue> option_values(const Options& options);
// For people: "host:4G, cuda", "none".
std::string value_text(const Option& option, const OptionValue& value);
// For gshm.toml: ["host:4G", "cuda"]. Empty: the default cannot be written.
std::string toml_text(const Option& option, const OptionValue& value);

}  // namespace gshm::core
