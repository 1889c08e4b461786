#include "log.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace gshm::usrbio {
namespace {

LogLevel chosen_level() {
    // Read once: later changes of the environment have no effect, as in 3FS.
    static const LogLevel level = [] {
        const char* word = getenv("HF3FS_USRBIO_LIB_LOG");
        return parse_log_level(word != nullptr ? word : "");
    }();
    return level;
}

}  // namespace

LogLevel parse_log_level(std::string_view word) {
    // 3FS accepts whole logger configurations ("INFO; handler:..."): the level comes first, possibly after a name.
    word = word.substr(0, word.find_first_of(";,:"));
    if (size_t equals = word.rfind('='); equals != word.npos) word.remove_prefix(equals + 1);
    std::string upper(word);
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(toupper(c)); });
    if (upper.starts_with("DBG") || upper == "DEBUG") return LogLevel::debug;
    if (upper == "INFO") return LogLevel::info;
    if (upper == "ERR" || upper == "ERROR") return LogLevel::error;
    if (upper == "CRITICAL" || upper == "DFATAL" || upper == "FATAL") return LogLevel::none;
    return LogLevel::warning;
}

bool log_enabled(LogLevel level) {
    return level >= chosen_level();
}

void log_line(LogLevel level, const std::string& text) {
    static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    tm local = {};
    localtime_r(&now.tv_sec, &local);
    char when[32];
    strftime(when, sizeof when, "%F %T", &local);
    std::string line = fmt::format("{}.{:03} usrbio {}: {}\n", when, now.tv_nsec / 1'000'000,
                                   kNames[static_cast<size_t>(level)], text);
    // One write, so that lines of several threads and processes do not mix.
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

std::string errno_name(int code) {
    const char* name = strerrorname_np(code);
    return name != nullptr ? name : fmt::format("errno {}", code);
}

}  // namespace gshm::usrbio
