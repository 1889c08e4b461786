#include "base/process.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/core.h>

namespace gshm::core {

uint64_t process_started(pid_t pid) {
    if (pid <= 0) return 0;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    if (!std::getline(file, line)) return 0;
    // "pid (name) state ...": the name may contain any character, parentheses too. The state is the 3rd field, the
    // start time the 22nd.
    size_t end = line.rfind(')');
    if (end == std::string::npos) return 0;
    std::istringstream fields(line.substr(end + 1));
    std::string field;
    for (int i = 3; i <= 22; ++i) {
        fields >> field;
        if (i == 3 && (field == "Z" || field == "X")) return 0;  // ended, but not reaped yet
    }
    return std::strtoull(field.c_str(), nullptr, 10);
}

bool process_lives(pid_t pid, uint64_t started) {
    if (pid <= 0) return true;
    uint64_t now = process_started(pid);
    return now != 0 && (started == 0 || now == started);
}

pid_t process_of_thread(pid_t thread) {
    if (thread <= 0) return 0;
    constexpr std::string_view kKey = "Tgid:";
    std::ifstream file(fmt::format("/proc/{}/status", thread));
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(kKey)) return static_cast<pid_t>(std::atol(line.c_str() + kKey.size()));
    }
    return 0;
}

}  // namespace gshm::core
