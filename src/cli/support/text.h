// Formats values for people.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace gshm::cli {

// "8.0M", "16G", "512": powers of 1024, rounded to at least two digits; the exact bytes if `exact`.
std::string size_text(uint64_t bytes, bool exact = false);
// "2026-03-01T14:05:06.250000000+01:00", local time.
std::string time_text(int64_t ns);
// "1h30m", "500ms": as `--ttl` takes it, without the parts that are 0.
std::string duration_text(uint64_t ms);
// "0640"
std::string mode_text(uint32_t mode);
// "drwxr-x---"
std::string permissions_text(char type, uint32_t mode);

// is_utf8: the whole text is valid UTF-8. is_text: also without control characters other than tab and newline.
bool is_utf8(std::string_view bytes);
bool is_text(std::string_view bytes);
// Escapes control characters and invalid UTF-8 (\n, \x1b), so that a name cannot control the terminal.
std::string printable(std::string_view bytes);
std::string hex_text(std::string_view bytes);
// The columns on a terminal, one for each code point.
size_t width_of(std::string_view text);

// Names of users and groups, or their numbers if they have no name. Each is looked up once.
class Accounts {
public:
    const std::string& user(uint32_t uid);
    const std::string& group(uint32_t gid);

private:
    std::map<uint32_t, std::string> users_;
    std::map<uint32_t, std::string> groups_;
};

}  // namespace gshm::cli
