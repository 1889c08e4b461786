#include "cli/support/numbers.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "base/size.h"
#include "cli/support/failure.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

[[noreturn]] void reject(std::string_view option, std::string_view text, std::string_view wanted) {
    throw Failure::usage(fmt::format("{} {}: {}", option, printable(text), wanted));
}

// 0 is "no limit" to the library, and "nothing" to a reader.
constexpr std::string_view kNoZero = "a limit is at least 1; `none` removes it";

struct Prefix {
    uint64_t value = 0;
    std::errc error{};
    std::string_view rest;
};

// The number at the start of a text, decimal or 0x.
Prefix parse_prefix(std::string_view text) {
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    const auto digits = text.substr(hex ? 2 : 0);
    Prefix prefix;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), prefix.value, hex ? 16 : 10);
    prefix.error = error;
    prefix.rest = digits.substr(static_cast<size_t>(end - digits.data()));
    return prefix;
}

std::optional<uint32_t> octal(std::string_view text, uint32_t most) {
    uint32_t mode = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
    if (error != std::errc{} || end != text.data() + text.size() || mode == 0 || mode > most) return std::nullopt;
    return mode;
}

}  // namespace

uint64_t parse_size(std::string_view option, std::string_view text) {
    const auto size = core::parse_size(text);
    if (size) return *size;
    if (size.error().code == ERANGE) reject(option, text, "more than 2^63 - 1 bytes");
    reject(option, text, "not a size; write bytes (4096, 0x1000), or whole K, M, G or T of 1024 (8M, 8MiB)");
}

uint8_t parse_byte(std::string_view option, std::string_view text) {
    const auto [value, error, rest] = parse_prefix(text);
    if (error != std::errc{} || !rest.empty() || value > 255)
        reject(option, text, "not a byte; write 0 to 255, or 0x00 to 0xff");
    return static_cast<uint8_t>(value);
}

uint32_t parse_mode(std::string_view option, std::string_view text) {
    if (const auto mode = octal(text, 0777)) return *mode;
    reject(option, text, "not a mode; write permission bits in octal, from 0001 to 0777 (0640: the group may read)");
}

uint32_t parse_directory_mode(std::string_view option, std::string_view text) {
    if (const auto mode = octal(text, 07777)) return *mode;
    reject(option, text, "not a mode; write permission bits in octal, from 0001 to 7777 (2770: for the group)");
}

int parse_seconds(std::string_view option, std::string_view text) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const double ms = std::ceil(seconds * 1000);
    if (error != std::errc{} || end != text.data() + text.size() || !(ms >= 0) || ms > std::numeric_limits<int>::max())
        reject(option, text, "not a time; write seconds from 0 to 2147483, such as 30 or 0.5");
    return static_cast<int>(ms);
}

uint64_t parse_duration(std::string_view option, std::string_view text) {
    constexpr uint64_t kMost = uint64_t{36500} * 24 * 3600 * 1000;
    struct Unit {
        std::string_view name;
        uint64_t ms;
    };
    // "ms" is tried before "m".
    constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
    uint64_t total = 0;
    uint64_t last_unit = UINT64_MAX;
    for (auto rest = text; !rest.empty() || text.empty();) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        rest.remove_prefix(static_cast<size_t>(end - rest.data()));
        uint64_t unit = 0;
        for (const auto& [name, ms] : kUnits) {
            if (unit == 0 && rest.starts_with(name)) {
                unit = ms;
                rest.remove_prefix(name.size());
            }
        }
        if (unit == 0 && rest.empty() && last_unit == UINT64_MAX) unit = 1000;  // a number alone
        if (error == std::errc::invalid_argument || unit == 0 || unit >= last_unit)
            reject(option, text, "not a time; write 500ms, 30s, 10m, 1h30m or 2d");
        if (error != std::errc{} || value > kMost / unit || total + value * unit > kMost)
            reject(option, text, "more than 100 years");
        total += value * unit;
        last_unit = unit;
    }
    if (total == 0) reject(option, text, "a time of more than 0 is needed");
    return total;
}

unsigned parse_count(std::string_view option, std::string_view text, unsigned least, unsigned most) {
    const auto [value, error, rest] = parse_prefix(text);
    if (error != std::errc{} || !rest.empty() || value < least || value > most)
        reject(option, text, fmt::format("not a number from {} to {}", least, most));
    return static_cast<unsigned>(value);
}

uint64_t parse_limit(std::string_view option, std::string_view text) {
    if (text == "none") return 0;
    const uint64_t bytes = parse_size(option, text);
    if (bytes == 0) reject(option, text, kNoZero);
    return bytes;
}

uint64_t parse_limit_count(std::string_view option, std::string_view text) {
    if (text == "none") return 0;
    uint64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc{} || end != text.data() + text.size())
        reject(option, text, "not a number; write one such as 100000, or none");
    if (count == 0) reject(option, text, kNoZero);
    return count;
}

uint64_t parse_span(std::string_view option, std::string_view text) {
    constexpr uint64_t kSecond = 1000;
    return (parse_duration(option, text) + kSecond - 1) / kSecond;
}

}  // namespace gshm::cli
