// torture: programs use a gshmd while the daemon, its keeper and the programs are killed at random. Nothing may be
// lost.
//
//   torture [--kills N | --seconds N] [--seed S] [--device host|cuda] [--mount | --no-mount | --tiers] [--verbose]
//
// --tiers: objects of a GPU that is too small leave it for the host and a folder, and return. Without a mount.
// The daemon and its keeper are never killed at the same time, which would lose the memory. The journal of expected
// contents is in memory that the users share. It is compared with the store after every few kills. Exit status 1: data
// was lost or wrong.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <getopt.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "integration/daemon_fixture.h"
#include "integration/torture/library_user.h"
#include "integration/torture/verify.h"
#include "support/pattern.h"

namespace gshm::core::torture {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    uint64_t kills = 25;
    uint64_t seconds = 0;  // instead of kills
    uint64_t seed = 1;
    bool cuda = false;
    bool mount = true;
    bool tiers = false;
    bool verbose = false;
};

constexpr unsigned kWriters = 2;
constexpr unsigned kReaders = 2;
constexpr unsigned kMountUsers = 2;
constexpr unsigned kFirstMountUser = kWriters + kReaders;

class Torture : private test::DaemonFixture {
public:
    explicit Torture(const Options& options)
        : options_(options),
          random_(options.seed),
          users_(options.mount ? kFirstMountUser + kMountUsers : kFirstMountUser),
          shared_(static_cast<Shared*>(
              mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        mount_ = options.mount ? scratch() + "/mnt" : "";
        if (options.mount) ::mkdir(mount_.c_str(), 0755);
    }
    ~Torture() {
        for (pid_t pid : pids_) {
            if (pid > 0) ::kill(pid, SIGKILL);
        }
        if (!running()) kill_keeper();  // releases processes that wait for the mount
        for (pid_t pid : pids_) {
            if (pid > 0) waitpid(pid, nullptr, 0);
        }
        stop();
        if (!mount_.empty()) umount2(mount_.c_str(), MNT_DETACH);
    }

    int run() {
        const auto begun = Clock::now();
        std::vector<std::string> args;
        if (!mount_.empty()) args.push_back(mount_);
        if (options_.tiers) {
            args.insert(args.end(), {"--device", "cuda:0:12M", "--tier", "host:6M", "--tier", scratch() + "/tier"});
        } else if (options_.cuda) {
            args.insert(args.end(), {"--device", "cuda:0:1G"});
        }
        args.insert(args.end(), {"--device", "host:1G"});
        if (!start(args, environment())) return report(begun, "gshmd does not start");
        for (unsigned user = 0; user < users_; ++user) spawn(user);
        std::string wrong;
        while (wrong.empty() && !is_enough(begun)) {
            for (int i = 0; i < 5 && wrong.empty() && !is_enough(begun); ++i) wrong = kill_something();
            if (wrong.empty()) wrong = check();
        }
        if (wrong.empty()) {
            shared_->stop = true;
            for (unsigned user = 0; user < users_ && wrong.empty(); ++user) wrong = wait_for_end(user);
        }
        return report(begun, wrong);
    }

private:
    enum Kind { kDaemon, kStarting, kTakeover, kKeeper, kClient, kKinds };

    std::vector<std::string> environment() const {
        return options_.cuda ? fake_cuda_env(1) : std::vector<std::string>{};
    }
    uint64_t kill_count() const {
        uint64_t count = 0;
        for (int kind = 0; kind < kKinds; ++kind) count += kind == kTakeover ? 0 : counts_[kind];
        return count;
    }
    bool is_enough(Clock::time_point begun) const {
        if (options_.seconds > 0) return Clock::now() - begun >= std::chrono::seconds(options_.seconds);
        return kill_count() >= options_.kills;
    }
    void sleep_below(uint64_t microseconds) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_.below(microseconds)));
    }
    void say(const char* what, const std::string& more = {}) {
        if (options_.verbose) fprintf(stderr, "%s %s\n", what, more.c_str());
        timespec now = {};
        clock_gettime(CLOCK_REALTIME, &now);
        char time[48];
        snprintf(time, sizeof time, "%02lld.%03lld ", static_cast<long long>(now.tv_sec % 60),
                 static_cast<long long>(now.tv_nsec / 1'000'000));
        last_.push_back(time + std::string(what) + " " + more);
        if (last_.size() > 10) last_.erase(last_.begin());
    }

    Task task_of(unsigned user) {
        return {shared_, &shared_->users[user], user, random_.next(), dir(), mount_, options_.cuda, options_.tiers};
    }
    void spawn(unsigned user) {
        const Task task = task_of(user);
        shared_->users[user].paused = false;
        const pid_t parent = getpid();
        pids_[user] = fork();
        if (pids_[user] != 0) return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        const std::string said = user < kWriters          ? write_objects(task)
                                 : user < kFirstMountUser ? read_objects(task)
                                                          : use_mount(task);
        snprintf(task.journal->error, sizeof task.journal->error, "%s", said.c_str());
        _exit(said.empty() ? 0 : 1);
    }
    // "" if it is running.
    std::string look_after(unsigned user) {
        int status = 0;
        if (waitpid(pids_[user], &status, WNOHANG) == 0) return {};
        pids_[user] = 0;
        return describe_end(user, status);
    }
    std::string describe_end(unsigned user, int status) const {
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
        std::string said = "user " + std::to_string(user);
        if (WIFSIGNALED(status)) return said + " was ended by signal " + std::to_string(WTERMSIG(status));
        return said + ": " + shared_->users[user].error;
    }
    std::string look_after_all() {
        for (unsigned user = 0; user < users_; ++user) {
            if (auto wrong = look_after(user); !wrong.empty()) return wrong;
        }
        return {};
    }
    std::string wait_for_end(unsigned user) {
        int status = 0;
        waitpid(std::exchange(pids_[user], 0), &status, 0);
        return describe_end(user, status);
    }

    std::string kill_something() {
        sleep_below(60'000);
        if (auto wrong = look_after_all(); !wrong.empty()) return wrong;
        const uint64_t choice = random_.below(100);
        if (choice < 50) return kill_daemon();
        if (choice < 55) return replace_daemon();
        if (choice < 75) return kill_its_keeper();
        return kill_client();
    }

    std::string kill_daemon() {
        say("kill daemon");
        kill();
        ++counts_[kDaemon];
        if (auto wrong = verify_catalog(dir(), scratch() + "/copy"); !wrong.empty()) return wrong;
        sleep_below(300'000);
        while (random_.below(5) == 0) {  // again, before it is ready
            say("kill daemon while it starts");
            if (!begin_to_start({}, environment())) return "gshmd cannot be started";
            sleep_below(80'000);
            kill();
            ++counts_[kStarting];
            if (auto wrong = verify_catalog(dir(), scratch() + "/copy"); !wrong.empty()) return wrong;
        }
        if (!start({}, environment())) return "gshmd does not start again";
        return {};
    }

    std::string replace_daemon() {
        say("take over");
        ++counts_[kTakeover];
        return take_over({}, environment()) ? "" : "gshmd cannot be taken over";
    }

    std::string kill_its_keeper() {
        const pid_t keeper = keeper_pid();
        say("kill keeper", std::to_string(keeper));
        if (keeper <= 0 || keeper == pid()) return "there is no keeper";
        ::kill(keeper, SIGKILL);
        ++counts_[kKeeper];
        for (int i = 0;; ++i) {
            const pid_t now = keeper_pid();
            if (now > 0 && now != keeper && now != pid()) break;
            if (i == 60'000 || !running()) return "the keeper is not replaced";
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        // The daemon passes all descriptors on in one turn, and then answers.
        ClientOwner client;
        if (auto wrong = connect(task_of(0), &client); !wrong.empty()) return wrong;
        return kept_descriptors(dir()) >= 0 ? "" : "the new keeper does not answer";
    }

    std::string kill_client() {
        const auto user = static_cast<unsigned>(random_.below(users_));
        say("kill client", std::to_string(user));
        ::kill(pids_[user], SIGKILL);
        ++counts_[kClient];
        int status = 0;
        waitpid(pids_[user], &status, 0);
        if (!WIFSIGNALED(status)) return describe_end(user, status);
        spawn(user);
        return {};
    }

    std::string check() {
        shared_->pause = true;
        for (unsigned user = 0; user < users_; ++user) {
            while (!shared_->users[user].paused) {
                if (auto wrong = look_after_all(); !wrong.empty()) return wrong;
                if (!running()) return "gshmd has ended by itself";
                usleep(1000);
            }
        }
        auto wrong = verify(task_of(0), kFirstMountUser, users_, &verified_);
        ++rounds_;
        for (unsigned user = 0; user < users_; ++user) shared_->users[user].paused = false;
        shared_->pause = false;
        say("verified", std::to_string(verified_.objects));
        return wrong;
    }

    int report(Clock::time_point begun, const std::string& wrong) {
        uint64_t steps = 0, checks = 0;
        for (const Journal& journal : shared_->users) {
            steps += journal.steps;
            checks += journal.checks;
        }
        const auto took = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun).count();
        printf("torture --device %s %s --seed %llu: %llu kills in %lld s (daemon %llu, daemon while it started %llu, "
               "keeper "
               "%llu, clients %llu), %llu takeovers\n",
               options_.cuda ? "cuda" : "host",
               options_.tiers   ? "--tiers"
               : options_.mount ? "--mount"
                                : "--no-mount",
               static_cast<unsigned long long>(options_.seed), static_cast<unsigned long long>(kill_count()),
               static_cast<long long>(took), static_cast<unsigned long long>(counts_[kDaemon]),
               static_cast<unsigned long long>(counts_[kStarting]), static_cast<unsigned long long>(counts_[kKeeper]),
               static_cast<unsigned long long>(counts_[kClient]), static_cast<unsigned long long>(counts_[kTakeover]));
        printf(
            "acknowledged changes: %llu; objects verified: %llu in %llu rounds (%llu MiB), and %llu times by users\n",
            static_cast<unsigned long long>(steps), static_cast<unsigned long long>(verified_.objects),
            static_cast<unsigned long long>(rounds_), static_cast<unsigned long long>(verified_.bytes >> 20),
            static_cast<unsigned long long>(checks));
        if (wrong.empty()) {
            printf("nothing was lost\n");
            return 0;
        }
        const std::string said = log();
        for (const auto& action : last_) printf("%s\n", action.c_str());
        printf("FAILED: %s\nseed %llu; the end of the daemon's log:\n%s\n", wrong.c_str(),
               static_cast<unsigned long long>(options_.seed),
               said.substr(said.size() - std::min<size_t>(said.size(), 4000)).c_str());
        return 1;
    }

    const Options options_;
    test::Random random_;
    const unsigned users_;
    Shared* const shared_;
    std::string mount_;
    pid_t pids_[kUsers] = {};
    uint64_t counts_[kKinds] = {};
    uint64_t rounds_ = 0;
    Verified verified_;
    std::vector<std::string> last_;  // recent actions
};

int usage() {
    fprintf(stderr, "usage: torture [--kills N | --seconds N] [--seed S] [--device host|cuda] [--mount | --no-mount | "
                    "--tiers] [--verbose]\n");
    return 2;
}

// The mount ends with this process and its children, even after a crash.
bool have_own_mounts() {
    return unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

int run(int argc, char** argv) {
    const option long_options[] = {
        {"kills", required_argument, nullptr, 'k'},
        {"seconds", required_argument, nullptr, 't'},
        {"seed", required_argument, nullptr, 's'},
        {"device", required_argument, nullptr, 'd'},
        {"mount", no_argument, nullptr, 'm'},
        {"no-mount", no_argument, nullptr, 'n'},
        {"tiers", no_argument, nullptr, 'T'},
        {"verbose", no_argument, nullptr, 'v'},
        {},
    };
    Options options;
    for (int choice = 0; (choice = getopt_long(argc, argv, "", long_options, nullptr)) != -1;) {
        switch (choice) {
            case 'k': options.kills = strtoull(optarg, nullptr, 10); break;
            case 't': options.seconds = strtoull(optarg, nullptr, 10); break;
            case 's': options.seed = strtoull(optarg, nullptr, 10); break;
            case 'd': options.cuda = std::string_view(optarg) == "cuda"; break;
            case 'm': options.mount = true; break;
            case 'n': options.mount = false; break;
            case 'T':
                options.tiers = options.cuda = true;
                options.mount = false;
                break;
            case 'v': options.verbose = true; break;
            default: return usage();
        }
    }
    if (options.mount && (access("/dev/fuse", R_OK | W_OK) != 0 || !have_own_mounts())) {
        fprintf(stderr, "torture: skipped: no /dev/fuse, or no mount namespace of its own (not root)\n");
        return 77;
    }
    if (options.cuda) {
        setenv("FAKECUDA_DEVICES", "1", 1);
        if (dlopen(test::fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
            fprintf(stderr, "torture: %s\n", dlerror());
            return 1;
        }
    }
    return Torture(options).run();
}

}  // namespace
}  // namespace gshm::core::torture

int main(int argc, char** argv) {
    return gshm::core::torture::run(argc, argv);
}
