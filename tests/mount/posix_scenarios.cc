#include "mount/posix_scenarios.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sstream>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

namespace gshm::core::test {
namespace {

constexpr unsigned kHangSeconds = 120;  // more than ten times the longest scenario
constexpr size_t kContextLines = 3;

// Takes ownership of the descriptor.
void empty_directory(int fd) {
    DIR* stream = ::fdopendir(fd);
    if (!stream) {
        ::close(fd);
        return;
    }
    // Names first: readdir of a shrinking directory is itself under test.
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(stream)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    for (const auto& name : names) {
        if (::unlinkat(fd, name.c_str(), 0) == 0 || errno == ENOENT) continue;
        if (::unlinkat(fd, name.c_str(), AT_REMOVEDIR) == 0) continue;
        ::fchmodat(fd, name.c_str(), 0700, 0);
        const int child = ::openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child >= 0) empty_directory(child);
        ::unlinkat(fd, name.c_str(), AT_REMOVEDIR);
    }
    ::closedir(stream);
}

std::vector<std::string> lines_of(int fd) {
    std::string text;
    char block[65536];
    ssize_t n = 0;
    while ((n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) text.append(block, static_cast<size_t>(n));
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// Runs in a child process: the scenario may change process state (umask, limits, working directory) and may crash.
[[noreturn]] void run_here(const Scenario& scenario, const std::string& dir, int log_fd) {
    ::alarm(kHangSeconds);
    ::signal(SIGPIPE, SIG_IGN);
    ::umask(022);
    Recorder recorder(log_fd);
    scenario.run(recorder, dir);
    ::_exit(0);
}

// A line of a comparison: ' ' in both, '-' only in the first, '+' only in the second.
struct DiffLine {
    char side;
    const std::string* text;
};

// By the longest common subsequence; logs have some hundred lines.
std::vector<DiffLine> diff(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::vector<std::vector<unsigned>> common(a.size() + 1, std::vector<unsigned>(b.size() + 1));
    for (size_t i = a.size(); i-- > 0;)
        for (size_t j = b.size(); j-- > 0;)
            common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    std::vector<DiffLine> lines;
    size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
        if (i < a.size() && j < b.size() && a[i] == b[j]) {
            lines.push_back({' ', &a[i++]});
            ++j;
        } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
            lines.push_back({'-', &a[i++]});
        } else {
            lines.push_back({'+', &b[j++]});
        }
    }
    return lines;
}

bool near_difference(const std::vector<DiffLine>& lines, size_t at) {
    const size_t first = at < kContextLines ? 0 : at - kContextLines;
    const size_t last = std::min(lines.size(), at + kContextLines + 1);
    for (size_t i = first; i < last; ++i)
        if (lines[i].side != ' ') return true;
    return false;
}

}  // namespace

std::span<const Scenario> scenarios() {
    static const std::vector<Scenario> all = [] {
        std::vector<Scenario> list;
        for (const auto theme :
             {open_scenarios(), name_scenarios(), directory_scenarios(), link_scenarios(), rename_scenarios(),
              special_scenarios(), rights_scenarios(), owner_scenarios(), time_scenarios(), data_scenarios(),
              space_scenarios(), mapping_scenarios(), attribute_scenarios(), lock_scenarios()})
            list.insert(list.end(), theme.begin(), theme.end());
        return list;
    }();
    return all;
}

void remove_tree(const std::string& path) {
    ::chmod(path.c_str(), 0700);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) empty_directory(fd);
    ::rmdir(path.c_str());
}

std::vector<std::string> record(const Scenario& scenario, const std::string& parent) {
    const std::string dir = parent + "/" + scenario.name;
    remove_tree(dir);  // left by a killed run
    if (::mkdir(dir.c_str(), 0755) != 0 || ::chmod(dir.c_str(), 0755) != 0)
        return {fmt::format("cannot make {}: {}", dir, errno_name(errno))};
    int log[2] = {-1, -1};
    if (::pipe2(log, O_CLOEXEC) != 0) return {"no pipe: " + errno_name(errno)};
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::close(log[0]);
        run_here(scenario, dir, log[1]);
    }
    ::close(log[1]);
    auto lines = lines_of(log[0]);
    ::close(log[0]);
    int status = 0;
    while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (pid < 0) lines.push_back("no child: " + errno_name(errno));
    if (WIFSIGNALED(status))
        lines.push_back(fmt::format("the scenario was ended by SIG{}", ::sigabbrev_np(WTERMSIG(status))));
    else if (WEXITSTATUS(status) != 0) lines.push_back(fmt::format("the scenario exited with {}", WEXITSTATUS(status)));
    remove_tree(dir);
    return lines;
}

std::string compare(const Scenario& scenario, const std::string& dir_a, const std::string& dir_b) {
    const auto a = record(scenario, dir_a);
    const auto b = record(scenario, dir_b);
    if (a == b) return "";
    auto text = fmt::format("{}: not the same in both\n--- {}\n+++ {}\n", scenario.name, dir_a, dir_b);
    const auto lines = diff(a, b);
    bool skipping = false;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (near_difference(lines, i)) text += fmt::format("{} {}\n", lines[i].side, *lines[i].text);
        else if (!skipping) text += "  ...\n";
        skipping = !near_difference(lines, i);
    }
    return text;
}

}  // namespace gshm::core::test
