#include "cli/support/text.h"

#include <ctime>
#include <grp.h>
#include <pwd.h>

#include <fmt/core.h>

namespace gshm::cli {
namespace {

// Length of the UTF-8 sequence at the start of the text; 0 if it is invalid.
size_t sequence_length(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto first = byte(0);
    if (first < 0x80) return 1;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Overlong forms, surrogates, beyond U+10FFFF.
    const auto second = byte(1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f))
        return 0;
    return length;
}

// C0, DEL, and C1, which some terminals interpret.
bool is_control(std::string_view sequence) {
    const auto first = static_cast<unsigned char>(sequence[0]);
    if (sequence.size() == 1) return first < 0x20 || first == 0x7f;
    return first == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;
}

}  // namespace

std::string size_text(uint64_t bytes, bool exact) {
    if (exact || bytes < 1024) return std::to_string(bytes);
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    // From 1023.5 on, the number would round to 1024: it is 1.0 of the next unit.
    for (; value >= 1023.5 && unit < 6; ++unit) value /= 1024;
    if (unit == 0) return std::to_string(bytes);
    return value < 9.95 ? fmt::format("{:.1f}{}", value, " KMGTPE"[unit])
                        : fmt::format("{:.0f}{}", value, " KMGTPE"[unit]);
}

std::string time_text(int64_t ns) {
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t fraction = (ns % kSecond + kSecond) % kSecond;
    const std::time_t seconds = (ns - fraction) / kSecond;
    std::tm local{};
    ::localtime_r(&seconds, &local);
    const long minutes = local.tm_gmtoff / 60;
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}{}{:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1,
                       local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, fraction,
                       local.tm_gmtoff < 0 ? '-' : '+', std::abs(minutes) / 60, std::abs(minutes) % 60);
}

std::string duration_text(uint64_t ms) {
    constexpr std::pair<uint64_t, const char*> kUnits[] = {
        {86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}, {1, "ms"}};
    std::string text;
    for (const auto& [unit, name] : kUnits) {
        if (ms >= unit) text += std::to_string(ms / unit) + name;
        ms %= unit;
    }
    return text.empty() ? "0s" : text;
}

std::string mode_text(uint32_t mode) {
    return fmt::format("{:04o}", mode & 07777);
}

std::string permissions_text(char type, uint32_t mode) {
    std::string text(1, type);
    for (int bit = 8; bit >= 0; --bit) text += mode >> bit & 1 ? "xwr"[bit % 3] : '-';
    if (mode & 01000) text.back() = mode & 1 ? 't' : 'T';
    return text;
}

bool is_utf8(std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t length = sequence_length(bytes);
        if (length == 0) return false;
        bytes.remove_prefix(length);
    }
    return true;
}

bool is_text(std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t length = sequence_length(bytes);
        if (length == 0) return false;
        if (is_control(bytes.substr(0, length)) && bytes[0] != '\t' && bytes[0] != '\n') return false;
        bytes.remove_prefix(length);
    }
    return true;
}

std::string printable(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
        const size_t length = sequence_length(bytes);
        const auto sequence = bytes.substr(0, length == 0 ? 1 : length);
        if (sequence == "\n") text += "\\n";
        else if (sequence == "\t") text += "\\t";
        else if (length == 0 || is_control(sequence))
            for (const char byte : sequence) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        else text += sequence;
        bytes.remove_prefix(sequence.size());
    }
    return text;
}

std::string hex_text(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

size_t width_of(std::string_view text) {
    size_t width = 0;
    for (const char byte : text) width += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
    return width;
}

const std::string& Accounts::user(uint32_t uid) {
    const auto [entry, added] = users_.try_emplace(uid);
    if (added) {
        const passwd* account = ::getpwuid(uid);
        entry->second = account ? account->pw_name : std::to_string(uid);
    }
    return entry->second;
}

const std::string& Accounts::group(uint32_t gid) {
    const auto [entry, added] = groups_.try_emplace(gid);
    if (added) {
        const struct group* account = ::getgrgid(gid);
        entry->second = account ? account->gr_name : std::to_string(gid);
    }
    return entry->second;
}

}  // namespace gshm::cli
