// Values of options from and to text, by the type of the row's member.
#include <algorithm>
#include <charconv>

#include "base/size.h"
#include "daemon/option_table.h"

namespace gshm::core {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};

Result<bool> to_switch(std::string_view text) {
    if (text == "true") return true;
    if (text == "false") return false;
    return fail(EINVAL, "'{}' is neither true nor false", text);
}

Result<uint64_t> to_number(std::string_view text, uint64_t least, uint64_t most) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
        return fail(EINVAL, "'{}' is not a number from {} to {}", text, least, most);
    }
    return number;
}

// "64M": the largest unit that gives a whole number.
std::string exact_size_text(uint64_t bytes) {
    constexpr std::string_view kUnits = "KMGT";
    std::string unit;
    for (char next : kUnits) {
        if (bytes == 0 || bytes % 1024 != 0) break;
        bytes /= 1024;
        unit = next;
    }
    return std::to_string(bytes) + unit;
}

Result<uint64_t> to_size(std::string_view text, uint64_t least, uint64_t most) {
    const uint64_t bytes = TRY(parse_size(text));
    if (bytes < least) return fail(EINVAL, "it must be {} or more, not {}", exact_size_text(least), text);
    if (bytes > most) return fail(EINVAL, "it must be {} or less, not {}", exact_size_text(most), text);
    return bytes;
}

Status check_text(const Option& option, std::string_view text) {
    // In messages and in --check-config a line is one value.
    if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; })) {
        return fail(EINVAL, "a value has no control characters");
    }
    if (text.empty()) return fail(EINVAL, "a value must not be empty");
    return option.check == nullptr ? Status{} : option.check(text);
}

Status set(Options& options, const OptionKey& key, const std::vector<std::string>& values) {
    const Option& option = *key.option;
    if (values.size() != 1 && !option.is_list()) return fail(EINVAL, "one value is needed");
    return std::visit(Overloaded{[&](bool Options::* member) -> Status {
                                     options.*member = TRY(to_switch(values[0]));
                                     return {};
                                 },
                                 [&](unsigned Options::* member) -> Status {
                                     const uint64_t most = std::min<uint64_t>(option.most, UINT32_MAX);
                                     options.*member =
                                         static_cast<unsigned>(TRY(to_number(values[0], option.least, most)));
                                     return {};
                                 },
                                 [&](uint64_t Options::* member) -> Status {
                                     options.*member = TRY(to_size(values[0], option.least, option.most));
                                     return {};
                                 },
                                 [&](std::string Options::* member) -> Status {
                                     TRY(check_text(option, values[0]));
                                     options.*member = values[0];
                                     return {};
                                 },
                                 [&](std::vector<std::string> Options::* member) -> Status {
                                     for (const auto& value : values) TRY(check_text(option, value));
                                     options.*member = values;
                                     return {};
                                 },
                                 [&](Budgets::Totals Options::* member) -> Status {
                                     const auto kind = Budgets::find(key.part);
                                     if (!kind) return fail(EINVAL, "there is no resource '{}'", key.part);
                                     (options.*member)[static_cast<size_t>(*kind)] =
                                         TRY(to_size(values[0], option.least, option.most));
                                     return {};
                                 }},
                      option.member);
}

std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const auto& text : texts) all += (all.empty() ? "" : ", ") + text;
    return all;
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

bool is_digits(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

OptionKey find_key(std::string_view key) {
    const size_t dot = key.find('.');
    const Option* option = find_option(key.substr(0, dot));
    if (option == nullptr || option->is_table() != (dot != key.npos)) return {};
    return {option, dot == key.npos ? std::string_view() : key.substr(dot + 1)};
}

Status set_option(Options& options, const OptionKey& key, std::string_view name,
                  const std::vector<std::string>& values) {
    auto done = set(options, key, values);
    if (!done) return fail(EINVAL, "{}: {}", name, done.error().message);
    return {};
}

std::map<std::string, OptionValue> option_values(const Options& options) {
    static const Options defaults;
    std::map<std::string, OptionValue> all;
    for (const auto& row : option_table()) {
        std::visit(
            Overloaded{[&](Budgets::Totals Options::* member) {
                           for (size_t i = 0; i < Budgets::kKinds; ++i) {
                               const uint64_t total = (options.*member)[i];
                               auto& value =
                                   all[fmt::format("{}.{}", row.name, Budgets::name_of(static_cast<Resource>(i)))];
                               value.is_default = total == UINT64_MAX;
                               if (!value.is_default) value.values = {exact_size_text(total)};
                           }
                       },
                       [&](auto member) {
                           auto& value = all[std::string(row.name)];
                           const auto& given = options.*member;
                           using Type = std::remove_cvref_t<decltype(given)>;
                           value.is_default = given == defaults.*member;
                           if constexpr (std::is_same_v<Type, bool>) value.values = {given ? "true" : "false"};
                           else if constexpr (std::is_same_v<Type, unsigned>) value.values = {std::to_string(given)};
                           else if constexpr (std::is_same_v<Type, uint64_t>) value.values = {exact_size_text(given)};
                           else if constexpr (std::is_same_v<Type, std::string>) value.values = {given};
                           else value.values = given;
                       }},
            row.member);
    }
    return all;
}

std::string value_text(const Option& option, const OptionValue& value) {
    if (value.is_default && !option.default_text.empty()) return std::string(option.default_text);
    return joined(value.values);
}

std::string toml_text(const Option& option, const OptionValue& value) {
    if (value.is_default && !option.default_text.empty()) return {};
    if (option.is_list()) {
        std::vector<std::string> texts;
        for (const auto& text : value.values) texts.push_back(quoted(text));
        return fmt::format("[{}]", joined(texts));
    }
    const auto& text = value.values.at(0);
    const bool bare =
        option.is_switch() || option.is_number() || ((option.is_size() || option.is_table()) && is_digits(text));
    return bare ? text : quoted(text);
}

}  // namespace gshm::core
