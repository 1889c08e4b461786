// Messages on standard error, by the level in HF3FS_USRBIO_LIB_LOG.
#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace gshm::usrbio {

enum class LogLevel { debug, info, warning, error, none };

// The level of a word of 3FS: DBG (DBG0 to DBG9, DEBUG), INFO, WARN, ERR, CRITICAL, FATAL, in any case; WARN for
// others.
LogLevel parse_log_level(std::string_view word);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& text);
// "ENOENT", or "errno 1234".
std::string errno_name(int code);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
    log_at(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
    log_at(LogLevel::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
    log_at(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
    log_at(LogLevel::error, format, std::forward<Args>(args)...);
}

}  // namespace gshm::usrbio
