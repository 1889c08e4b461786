// Calls: clocks and other processes.
#include <cerrno>
#include <cstring>
#include <grp.h>
#include <optional>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"

namespace gshm::core::test {
namespace {

constexpr long kPauseNs = 15'000'000;  // more than a jiffy of the slowest kernel (10 ms)

std::optional<struct stat> stat_now(const std::string& path) {
    struct stat st{};
    if (::lstat(path.c_str(), &st) != 0) return {};
    return st;
}

// "": unchanged; " mtime": later than before; " -mtime": earlier.
std::string movement(const char* name, const timespec& before, const timespec& after) {
    if (before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec) return "";
    const bool back = after.tv_sec < before.tv_sec || (after.tv_sec == before.tv_sec && after.tv_nsec < before.tv_nsec);
    return std::string(back ? " -" : " ") + name;
}

std::string movements(const std::optional<struct stat>& before, const std::optional<struct stat>& after) {
    if (!before) return after ? "new" : "absent";
    if (!after) return "gone";
    const auto text = movement("atime", before->st_atim, after->st_atim) +
                      movement("mtime", before->st_mtim, after->st_mtim) +
                      movement("ctime", before->st_ctim, after->st_ctim);
    return text.empty() ? "" : text.substr(1);
}

// 0 or the errno of the call that failed.
int become(const User& user) {
    if (::setgroups(user.groups.size(), user.groups.data()) != 0) return errno;
    if (::setgid(user.gid) != 0 || ::setuid(user.uid) != 0) return errno;
    ::prctl(PR_SET_DUMPABLE, 1);  // otherwise /proc/self/fd still belongs to root
    return 0;
}

std::string ending(int status) {
    if (!WIFSIGNALED(status)) return fmt::format("exit {}", WEXITSTATUS(status));
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return name ? std::string("SIG") + name : fmt::format("signal {}", WTERMSIG(status));
}

int wait_for(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

}  // namespace

void pause_for_clock() {
    timespec left{0, kPauseNs};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

void Calls::moved(const std::string& what, std::initializer_list<std::string> names,
                  const std::function<void()>& action) {
    std::vector<std::optional<struct stat>> before;
    for (const auto& name : names) before.push_back(stat_now(at(name)));
    pause_for_clock();
    action();
    std::string text = "  times after " + what + ":";
    auto old = before.begin();
    for (const auto& name : names) text += fmt::format(" {}{{{}}}", name, movements(*old++, stat_now(at(name))));
    recorder_.line(text);
}

void Calls::as(const User& user, const std::function<void()>& action) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        recorder_.set_prefix(fmt::format("[{}] ", user.uid));
        if (const int code = become(user); code != 0) {
            recorder_.line("cannot become this user: " + errno_name(code));
            ::_exit(1);
        }
        action();
        ::_exit(0);
    }
    const int status = pid < 0 ? 0 : wait_for(pid);
    if (pid < 0 || WIFSIGNALED(status)) recorder_.line(fmt::format("as {}: {}", user.uid, ending(status)));
}

void Calls::in_child(const std::string& what, const std::function<int()>& action) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        recorder_.set_prefix("[child] ");
        ::_exit(action());
    }
    recorder_.line(fmt::format("{}: {}", what, pid < 0 ? "no child" : ending(wait_for(pid))));
}

}  // namespace gshm::core::test
