// Processes that work while a test acts on the daemon, and report failures at the end.
//
//   Workers workers;
//   workers.add([&](Workers::Self& self) -> std::string {
//       while (self.goes_on()) if (...) return "what went wrong";
//       return {};
//   });
//   ...
//   EXPECT_EQ(workers.finish(), "");
//
// A process that waits for a mount whose daemon is dead cannot be killed: before the destructor the daemon must be
// restarted, or its keeper killed.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gshm::core::test {

class Workers {
    struct Slot {
        std::atomic<uint64_t> rounds;
        char error[504];
    };
    struct Shared {
        std::atomic<bool> stop;
        std::atomic<uint64_t> limit;
        Slot slots[24];
    };

public:
    class Self {
    public:
        Self(Shared& shared, Slot& slot, unsigned number) : shared_(shared), slot_(slot), number_(number) {}
        unsigned number() const { return number_; }
        // Reports a finished round. Returns false if it was the last.
        bool goes_on() {
            slot_.rounds.fetch_add(1);
            return !shared_.stop;
        }
        bool is_stopped() const { return shared_.stop; }
        // The limit set by the test; see Workers::allow().
        uint64_t limit() const { return shared_.limit; }

    private:
        Shared& shared_;
        Slot& slot_;
        unsigned number_;
    };
    using Body = std::function<std::string(Self&)>;

    Workers()
        : shared_(static_cast<Shared*>(
              mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;
    ~Workers() {
        for (pid_t pid : pids_) {
            if (pid <= 0) continue;
            ::kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        munmap(shared_, sizeof(Shared));
    }

    // Not for programs with threads.
    void add(const Body& body) {
        const auto number = static_cast<unsigned>(pids_.size());
        Slot& slot = shared_->slots[number];
        const pid_t parent = getpid();
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            Self self(*shared_, slot, number);
            std::string said = body(self);
            snprintf(slot.error, sizeof slot.error, "%s", said.c_str());
            _exit(said.empty() ? 0 : 1);
        }
        pids_.push_back(child);
    }

    pid_t pid(unsigned number) const { return pids_.at(number); }
    uint64_t rounds(unsigned number) const { return shared_->slots[number].rounds; }
    uint64_t least_rounds() const {
        uint64_t least = UINT64_MAX;
        for (unsigned i = 0; i < pids_.size(); ++i) least = std::min(least, rounds(i));
        return least;
    }
    void allow(uint64_t limit) { shared_->limit = limit; }
    // A worker that has ended has failed.
    bool all_run() {
        for (size_t i = 0; i < pids_.size(); ++i) {
            int status = 0;
            if (pids_[i] > 0 && waitpid(pids_[i], &status, WNOHANG) == pids_[i]) gone(i, status);
            if (pids_[i] <= 0) return false;
        }
        return true;
    }
    // Waits until each worker has finished its first round. False: a worker has ended.
    bool wait_until_begun() {
        while (least_rounds() == 0) {
            if (!all_run()) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return true;
    }
    // Waits until each worker has finished `more` rounds. False: a worker has ended.
    bool wait_for_rounds(uint64_t more) {
        std::vector<uint64_t> wanted;
        for (unsigned i = 0; i < pids_.size(); ++i) wanted.push_back(rounds(i) + more);
        for (unsigned i = 0; i < pids_.size(); ++i) {
            while (rounds(i) < wanted[i]) {
                if (!all_run()) return false;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
        return true;
    }
    // Ends the workers. Returns "" if all succeeded.
    std::string finish() {
        shared_->stop = true;
        for (size_t i = 0; i < pids_.size(); ++i) {
            int status = 0;
            if (pids_[i] > 0 && waitpid(pids_[i], &status, 0) == pids_[i]) gone(i, status);
        }
        return std::exchange(said_, {});
    }

private:
    void gone(size_t number, int status) {
        pids_[number] = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
        said_ += "worker " + std::to_string(number) + ": ";
        if (WIFSIGNALED(status)) said_ += "ended by signal " + std::to_string(WTERMSIG(status));
        said_ += std::string(shared_->slots[number].error) + "\n";
    }

    Shared* shared_;
    std::vector<pid_t> pids_;
    std::string said_;
};

}  // namespace gshm::core::test
