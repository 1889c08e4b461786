#include "daemon/process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

#include <fmt/core.h>

namespace gshm::core {

void kill_if_named(pid_t pid, const std::string& name) {
    std::string found;
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::getline(file, found);
    if (pid > 0 && found == name) kill(pid, SIGKILL);
}

std::string program_beside(const std::string& name) {
    std::error_code error;
    std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
    constexpr std::string_view kDeleted = " (deleted)";  // replaced by an upgrade
    if (self.ends_with(kDeleted)) self.resize(self.size() - kDeleted.size());
    const auto folder = std::filesystem::path(self).parent_path();
    // In an installation in libexec, in a build folder beside gshmd. Relative, so that an installation can be moved.
    // Never from $PATH.
    const auto installed = (folder / GSHM_LIBEXEC / name).lexically_normal();
    return (access(installed.c_str(), X_OK) == 0 ? installed : folder / name).string();
}

namespace {

// PF_EXITING in the kernel's flags, the 9th field of /proc/PID/stat.
bool is_exiting(const std::string& stat) {
    constexpr unsigned long kExiting = 0x4;
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string field;
    for (int i = 3; i <= 9; ++i) fields >> field;
    return (std::strtoul(field.c_str(), nullptr, 10) & kExiting) != 0;
}

bool is_killed(std::istream& status) {
    constexpr unsigned long long kKill = 1ull << (SIGKILL - 1);
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
        if ((std::strtoull(line.c_str() + 7, nullptr, 16) & kKill) != 0) return true;
    }
    return false;
}

std::string read_stat(const std::string& folder) {
    std::string line;
    std::getline(std::ifstream(folder + "/stat"), line);
    return line;
}

// The letter of proc(5); 0: none.
char state_in(const std::string& stat) {
    const size_t name_end = stat.rfind(')');
    return name_end == std::string::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

// A thread's folder in /proc. Also true if it is not there: the thread has gone.
bool ends(const std::string& folder) {
    const std::string stat = read_stat(folder);
    const char state = state_in(stat);
    if (state == '\0' || state == 'Z' || state == 'X' || is_exiting(stat)) return true;
    std::ifstream status(folder + "/status");
    return is_killed(status);
}

}  // namespace

bool is_stopped(pid_t pid) {
    const char state = state_in(read_stat(fmt::format("/proc/{}", pid)));
    return state == 'T' || state == 't';
}

ProcessState process_state(pid_t pid) {
    if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) return ProcessState::gone;
    const std::string folder = fmt::format("/proc/{}", pid);
    if (read_stat(folder).empty()) return ProcessState::gone;
    if (!ends(folder)) return ProcessState::living;
    // The main thread may have ended alone.
    std::error_code error;
    std::filesystem::directory_iterator threads(folder + "/task", error);
    while (!error && threads != std::filesystem::directory_iterator()) {
        if (!ends(threads->path())) return ProcessState::living;
        threads.increment(error);
    }
    return ProcessState::dying;
}

}  // namespace gshm::core
