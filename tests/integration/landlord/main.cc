// landlord: many processes of several users share a device that is too small for them, while gshmd is killed again and
// again. Never may a held object be moved or lost, a limit be exceeded, a byte be wrong, or df differ from a recount.
//
//   landlord [--processes N] [--seconds N | --kills N] [--every MS] [--seed S] [--device SPEC]... [--gshmd ARG]...
//
// A device cuda:0 is that of the fake driver. --every: gshmd is killed about so often. --gshmd: further arguments for gshmd, such as a tier. Now and then a tenant is
// killed as well, and limits change. After every few kills all tenants wait, and the books are compared (audit.h). Exit
// status 1: something is wrong.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <getopt.h>
#include <grp.h>
#include <sys/mman.h>

#include "integration/daemon_fixture.h"
#include "integration/landlord/audit.h"
#include "support/pattern.h"

namespace gshm::core::landlord {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    unsigned processes = 100;
    uint64_t kills = 0;  // instead of seconds
    uint64_t seconds = 600;
    uint64_t every_ms = 10'000;
    uint64_t seed = 1;
    std::vector<std::string> devices;
    std::vector<std::string> gshmd;
};

constexpr unsigned kPinShare = 20;
constexpr unsigned kKillsBetweenAudits = 3;
constexpr uid_t kFirstUser = 61'000;
constexpr unsigned kUsers = 4;

class Landlord : private test::DaemonFixture {
public:
    explicit Landlord(const Options& options)
        : options_(options),
          random_(options.seed),
          shared_(static_cast<Shared*>(
              mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        for (const auto& spec : options.devices) {
            // "host:64M", "cuda:0:1G": the name is all but the size.
            const size_t colon = spec.rfind(':');
            const bool has_size = colon != std::string::npos && isalpha(spec.back()) != 0;
            devices_.push_back(has_size ? spec.substr(0, colon) : spec);
        }
    }
    ~Landlord() {
        for (pid_t pid : pids_) {
            if (pid > 0) ::kill(pid, SIGKILL);
        }
        for (pid_t pid : pids_) {
            if (pid > 0) waitpid(pid, nullptr, 0);
        }
        stop();
    }

    int run() {
        const auto begun = Clock::now();
        return report(begun, play(begun));
    }

private:
    std::string play(Clock::time_point begun) {
        std::vector<std::string> args = options_.gshmd;
        for (const auto& device : options_.devices) args.insert(args.end(), {"--device", device});
        args.insert(args.end(), {"--pin-share", std::to_string(kPinShare)});
        // Other users must reach the socket.
        ::chmod(scratch().c_str(), 0755);
        if (!start(args, environment())) return "gshmd does not start";
        if (auto wrong = connect(dir(), &client_); !wrong.empty()) return wrong;
        rules_.pin_share = kPinShare;
        if (auto wrong = set_limits(); !wrong.empty()) return wrong;
        for (unsigned i = 0; i < options_.processes; ++i) spawn(i);
        while (!is_enough(begun)) {
            if (auto wrong = pass(); !wrong.empty()) return wrong;
            kill();
            ++kills_;
            // Some calls find no gshmd at all.
            std::this_thread::sleep_for(std::chrono::milliseconds(random_.below(50)));
            if (!start({}, environment())) return "gshmd does not start again";
            if (kills_ % kKillsBetweenAudits != 0) continue;
            if (auto wrong = check_books(); !wrong.empty()) return wrong;
        }
        if (auto wrong = check_books(); !wrong.empty()) return wrong;
        shared_->stop = true;
        for (unsigned i = 0; i < options_.processes; ++i) {
            int status = 0;
            waitpid(std::exchange(pids_[i], 0), &status, 0);
            if (auto wrong = describe_end(i, status); !wrong.empty()) return wrong;
        }
        return clear();
    }

    bool is_enough(Clock::time_point begun) const {
        if (options_.kills > 0) return kills_ >= options_.kills;
        return Clock::now() - begun >= std::chrono::seconds(options_.seconds);
    }

    // GPUs are those of the fake driver.
    std::vector<std::string> environment() const {
        const bool has_gpu = std::ranges::any_of(devices_, [](const auto& name) { return name.starts_with("cuda"); });
        return has_gpu ? fake_cuda_env(1) : std::vector<std::string>{};
    }
    static bool is_root() { return ::geteuid() == 0; }
    static uid_t user_of(unsigned tenant) { return is_root() ? kFirstUser + tenant % kUsers : ::geteuid(); }

    void spawn(unsigned tenant) {
        const Task task{shared_, &shared_->tenants[tenant], tenant, random_.next(), dir(), devices_};
        task.own->paused = false;
        const pid_t parent = getpid();
        pids_[tenant] = fork();
        if (pids_[tenant] != 0) return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        const uid_t user = user_of(tenant);
        std::string said = "another user cannot be";
        if (!is_root() || (setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0)) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);  // setuid(2) clears it
            said = run_tenant(task);
        }
        snprintf(task.own->error, sizeof task.own->error, "%s", said.c_str());
        _exit(said.empty() ? 0 : 1);
    }
    std::string describe_end(unsigned tenant, int status) const {
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
        const std::string who = "tenant " + std::to_string(tenant);
        if (WIFSIGNALED(status)) return who + " was ended by signal " + std::to_string(WTERMSIG(status));
        return who + ": " + shared_->tenants[tenant].error;
    }
    std::string look_after_all() {
        for (unsigned i = 0; i < options_.processes; ++i) {
            int status = 0;
            if (waitpid(pids_[i], &status, WNOHANG) == 0) continue;
            pids_[i] = 0;
            return "too early: " + describe_end(i, status);
        }
        return running() ? "" : "gshmd has ended by itself";
    }

    // Half of the device, or a third, for each user. Without the privilege, or with a gshmd that has no limits: none.
    std::string set_limits() {
        if (!is_root()) return {};
        gshm_device_info devices[8] = {};
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        if (const int code = gshm_devices(client_.get(), devices, 8, &count); code != 0) {
            return code == -ECONNRESET ? "" : failed("devices", code);
        }
        uint64_t capacity = 0;
        for (size_t i = 0; i < count; ++i) capacity += devices[i].capacity_bytes;
        const uint64_t most = capacity / 2;
        for (unsigned i = 0; i < kUsers; ++i) {
            gshm_limit limit = GSHM_LIMIT_INIT;
            limit.kind = GSHM_LIMIT_USER;
            limit.id = kFirstUser + i;
            limit.fields = GSHM_LIMIT_BYTES;
            limit.bytes = random_.below(2) == 0 ? most : capacity / 3;
            const int code = gshm_limit_set(client_.get(), &limit);
            if (code == -EOPNOTSUPP) return {};
            if (code == -ECONNRESET) continue;
            if (code != 0) return failed("limit_set", code);
            rules_.most_bytes[limit.id] = most;
        }
        return {};
    }

    // The time until the next kill.
    std::string pass() {
        const auto until =
            Clock::now() + std::chrono::milliseconds(options_.every_ms / 2 + random_.below(options_.every_ms));
        while (Clock::now() < until) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            if (auto wrong = look_after_all(); !wrong.empty()) return wrong;
            if (auto wrong = check_limits(client_.get(), rules_); !wrong.empty()) return wrong;
            if (random_.below(100) == 0 && !rules_.most_bytes.empty()) {
                if (auto wrong = set_limits(); !wrong.empty()) return wrong;
            }
            if (random_.below(100) == 0) kill_tenant();
        }
        return {};
    }
    void kill_tenant() {
        const auto tenant = static_cast<unsigned>(random_.below(options_.processes));
        ::kill(pids_[tenant], SIGKILL);
        waitpid(pids_[tenant], nullptr, 0);
        ++killed_;
        spawn(tenant);
    }

    std::string check_books() {
        shared_->pause = true;
        for (unsigned i = 0; i < options_.processes; ++i) {
            while (!shared_->tenants[i].paused) {
                if (auto wrong = look_after_all(); !wrong.empty()) return wrong;
                usleep(1000);
            }
        }
        auto wrong = audit(client_.get(), rules_);
        ++audits_;
        for (unsigned i = 0; i < options_.processes; ++i) shared_->tenants[i].paused = false;
        shared_->pause = false;
        return wrong;
    }

    // When everything is unlinked, nothing is left.
    std::string clear() {
        gshm_listing* made = nullptr;
        if (const int code = gshm_list(client_.get(), "", GSHM_LIST_RECURSIVE, &made); code != 0)
            return failed("list", code);
        const ListingOwner named(made);
        for (size_t i = 0; i < gshm_listing_count(named.get()); ++i) {
            const int code = gshm_unlink(client_.get(), gshm_listing_name(named.get(), i));
            if (code != 0 && code != -ENOENT) return failed("unlink", code);
        }
        if (auto wrong = audit(client_.get(), rules_); !wrong.empty()) return wrong;
        gshm_device_info devices[8] = {};
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        for (int i = 0; i < 6000; ++i, usleep(10'000)) {
            if (const int code = gshm_devices(client_.get(), devices, 8, &count); code != 0)
                return failed("devices", code);
            uint64_t bytes = 0;
            for (size_t d = 0; d < count; ++d) bytes += devices[d].object_bytes;
            if (bytes == 0) return {};
        }
        return "bytes are left after the last object";
    }

    int report(Clock::time_point begun, const std::string& wrong) {
        uint64_t steps = 0, checks = 0, refused = 0;
        for (const auto& tenant : shared_->tenants) {
            steps += tenant.steps;
            checks += tenant.checks;
            refused += tenant.refused;
        }
        const auto took = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun).count();
        printf("landlord --processes %u --seed %llu: %llu kills of gshmd and %llu of tenants in %lld s\n",
               options_.processes, static_cast<unsigned long long>(options_.seed),
               static_cast<unsigned long long>(kills_), static_cast<unsigned long long>(killed_),
               static_cast<long long>(took));
        printf("%llu steps, %llu of them refused; %llu objects verified; %llu audits\n",
               static_cast<unsigned long long>(steps), static_cast<unsigned long long>(refused),
               static_cast<unsigned long long>(checks), static_cast<unsigned long long>(audits_));
        if (wrong.empty()) {
            printf("all is right\n");
            return 0;
        }
        const std::string said = log();
        printf("FAILED: %s\nseed %llu; the end of the daemon's log:\n%s\n", wrong.c_str(),
               static_cast<unsigned long long>(options_.seed),
               said.substr(said.size() - std::min<size_t>(said.size(), 4000)).c_str());
        return 1;
    }

    const Options options_;
    test::Random random_;
    Shared* const shared_;
    std::vector<std::string> devices_;
    ClientOwner client_;
    Rules rules_;
    pid_t pids_[kMostTenants] = {};
    uint64_t kills_ = 0;
    uint64_t killed_ = 0;
    uint64_t audits_ = 0;
};

int usage() {
    fprintf(stderr,
            "usage: landlord [--processes N] [--seconds N | --kills N] [--every MS] [--seed S] [--device SPEC]... "
            "[--gshmd ARG]...\n");
    return 2;
}

int run(int argc, char** argv) {
    const option long_options[] = {
        {"processes", required_argument, nullptr, 'p'}, {"seconds", required_argument, nullptr, 't'},
        {"kills", required_argument, nullptr, 'k'},     {"every", required_argument, nullptr, 'e'},
        {"seed", required_argument, nullptr, 's'},      {"device", required_argument, nullptr, 'd'},
        {"gshmd", required_argument, nullptr, 'g'},     {},
    };
    Options options;
    for (int choice = 0; (choice = getopt_long(argc, argv, "", long_options, nullptr)) != -1;) {
        switch (choice) {
            case 'p': options.processes = static_cast<unsigned>(strtoul(optarg, nullptr, 10)); break;
            case 't': options.seconds = strtoull(optarg, nullptr, 10); break;
            case 'k': options.kills = strtoull(optarg, nullptr, 10); break;
            case 'e': options.every_ms = strtoull(optarg, nullptr, 10); break;
            case 's': options.seed = strtoull(optarg, nullptr, 10); break;
            case 'd': options.devices.emplace_back(optarg); break;
            case 'g': options.gshmd.emplace_back(optarg); break;
            default: return usage();
        }
    }
    if (options.processes == 0 || options.processes > kMostTenants || options.every_ms == 0) return usage();
    if (options.devices.empty()) options.devices.emplace_back("host:64M");
    return Landlord(options).run();
}

}  // namespace
}  // namespace gshm::core::landlord

int main(int argc, char** argv) {
    return gshm::core::landlord::run(argc, argv);
}
