// Logging by level, to stderr until log_to_file() is called. Only log.cc includes the back end, spdlog.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace gshm::core {

enum class LogLevel { debug, info, warning, error };

void log_set_level(LogLevel level);
bool log_enabled(LogLevel level);
// Appends to this file from now on. Returns false, and changes nothing, if the file cannot be opened.
bool log_to_file(const std::string& path);
// Hands messages to the function instead, one at a time; empty: no longer. A former function is not called any more when
// this returns.
using LogFunction = std::function<void(LogLevel level, const char* message)>;
void log_to_function(LogFunction function);
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(level)) log_message(level, fmt::format(format, std::forward<Args>(args)...));
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

}  // namespace gshm::core
