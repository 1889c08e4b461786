// One thread of another process, stopped by ptrace(2) while the other threads go on: a race is then decided by the test.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace gshm::core::test {

// All calls by one thread of the test.
class StoppedThread {
public:
    explicit StoppedThread(pid_t thread) : thread_(thread) {
        if (ptrace(PTRACE_SEIZE, thread_, nullptr, PTRACE_O_TRACESYSGOOD) != 0) {
            error_ = strerror(errno);
            thread_ = 0;
            return;
        }
        ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
        wait_for_stop();
    }
    StoppedThread(const StoppedThread&) = delete;
    StoppedThread& operator=(const StoppedThread&) = delete;
    ~StoppedThread() { resume(); }

    // Not permitted, say.
    bool has_failed() const { return !error_.empty(); }
    const std::string& error() const { return error_; }
    void resume() {
        if (thread_ > 0) ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
        thread_ = 0;
    }
    // Runs it until it is about to make that system call; false: it has ended.
    bool run_until_call(long number) {
        while (run_until_edge()) {
            if (next_call() == number) return true;
        }
        return false;
    }
    // The system call that it is about to make; -1: it has just made one.
    long next_call() const {
        __ptrace_syscall_info info = {};
        if (ptrace(PTRACE_GET_SYSCALL_INFO, thread_, sizeof info, &info) < 0) return -1;
        return info.op == PTRACE_SYSCALL_INFO_ENTRY ? static_cast<long>(info.entry.nr) : -1;
    }

    // And until the call has been made.
    bool run_through_call(long number) { return run_until_call(number) && run_until_edge(); }
    // Runs it until a system call begins or ends; false: it has ended.
    bool run_until_edge() { return ptrace(PTRACE_SYSCALL, thread_, nullptr, nullptr) == 0 && wait_for_stop(); }

private:
    bool wait_for_stop() {
        int status = 0;
        return waitpid(thread_, &status, __WALL) == thread_ && WIFSTOPPED(status);
    }
    pid_t thread_;
    std::string error_;
};

// The system call in which a thread sleeps.
struct SleepingCall {
    long number = -1;       // -1: it runs
    std::string first;      // argument
    bool is_timed = false;  // a futex(2) with a timeout

    static SleepingCall of(pid_t process, pid_t thread) {
        std::ifstream call("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/syscall");
        SleepingCall found;
        std::string operation, value, timeout;
        if (!(call >> found.number >> found.first >> operation >> value >> timeout)) return {};
        found.is_timed = timeout != "0x0";
        return found;
    }
    bool is_futex() const { return number == SYS_futex; }
    bool is_epoll() const {
#ifdef SYS_epoll_wait
        if (number == SYS_epoll_wait) return true;
#endif
        return number == SYS_epoll_pwait;
    }
};

// An epoll set of another process: the descriptors in it, and the thread that waits at it.
class EpollSet {
public:
    EpollSet() = default;
    EpollSet(pid_t process, int epoll) : process_(process), epoll_(epoll) {}

    int number() const { return epoll_; }
    struct Entry {
        int fd;
        std::string data;  // of epoll_ctl(2): another one when the number is used again
        auto operator<=>(const Entry&) const = default;
    };
    std::set<Entry> entries() const {
        std::set<Entry> found;
        std::ifstream info(proc() + "/fdinfo/" + std::to_string(epoll_));
        for (std::string word; info >> word;) {
            Entry entry;
            if (word != "tfd:" || !(info >> entry.fd)) continue;
            while (info >> word && word != "data:") {}
            info >> entry.data;
            found.insert(entry);
        }
        return found;
    }
    // When it waits there.
    pid_t thread() const {
        for (;;) {
            for (const auto& task : std::filesystem::directory_iterator(proc() + "/task")) {
                const pid_t thread = atoi(task.path().filename().c_str());
                const auto call = SleepingCall::of(process_, thread);
                if (call.is_epoll() && std::stoi(call.first, nullptr, 16) == epoll_) return thread;
            }
        }
    }
    // A task was posted to the loop and is not taken yet: its eventfd counts.
    bool has_posted() const {
        for (const Entry& entry : entries()) {
            std::ifstream info(proc() + "/fdinfo/" + std::to_string(entry.fd));
            for (std::string word, count; info >> word;) {
                if (word == "eventfd-count:" && info >> count && std::stoull(count, nullptr, 16) > 0) return true;
            }
        }
        return false;
    }
    static std::vector<EpollSet> of(pid_t process) {
        std::vector<EpollSet> all;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
            std::error_code gone;
            if (std::filesystem::read_symlink(entry.path(), gone) != "anon_inode:[eventpoll]") continue;
            all.emplace_back(process, atoi(entry.path().filename().c_str()));
        }
        return all;
    }

private:
    std::string proc() const { return "/proc/" + std::to_string(process_); }
    pid_t process_ = 0;
    int epoll_ = -1;
};

}  // namespace gshm::core::test
