// How values look to people.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace gshm::cli {

// "8.0M", "16G", "512": powers of 1024, rounded to two digits or more; all bytes if exact.
std::string size_text(uint64_t bytes, bool exact = false);
// "2026-03-01T14:05:06.250000000+01:00", local time.
std::string time_text(int64_t ns);
// "0640"
std::string mode_text(uint32_t mode);
// "drwxr-x---"
std::string permissions_text(char type, uint32_t mode);

// UTF-8 throughout, and no control characters but tab and newline.
bool is_utf8(std::string_view bytes);
bool is_text(std::string_view bytes);
// Control characters and invalid UTF-8 become \n, \x1b and the like: nothing in a name can drive a terminal.
std::string printable(std::string_view bytes);
std::string hex_text(std::string_view bytes);
// Columns it takes on a terminal, one for each code point.
size_t width_of(std::string_view text);

// Names of users and groups, or their numbers where they have none. Each is looked up once.
class Accounts {
public:
    const std::string& user(uint32_t uid);
    const std::string& group(uint32_t gid);

private:
    std::map<uint32_t, std::string> users_;
    std::map<uint32_t, std::string> groups_;
};

}  // namespace gshm::cli
