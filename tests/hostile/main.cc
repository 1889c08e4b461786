// hostile: an ordinary user attacks a gshmd, while another one uses it.
//
// For each attack a gshmd starts in a folder of its own. A bystander pings it at a steady rate and makes full rounds of
// calls, first alone and then while the attack runs. When the attack is over, gshmd holds what it held before. Exit
// status 1: the bar is not met; 77: this machine cannot run it.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <getopt.h>
#include <sys/resource.h>

#include "hostile/scene.h"

namespace gshm::core::hostile {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// ---- the bar ----
constexpr double kRatio = 5;                    // ping p99 under attack, in terms of the idle one
constexpr double kAdditionMs = 2;               // and this
constexpr uint64_t kMemorySlackKib = 32 << 10;  // freed memory that the allocator keeps
constexpr uint64_t kFileSlackKib = 32 << 10;    // free pages of the catalog
constexpr uint64_t kLogSlackKib = 1 << 10;
constexpr int kAttackerNice = 19;
constexpr seconds kSettling(30);  // gshmd has released everything by then
constexpr seconds kHanging(30);   // a call of the bystander that takes longer
constexpr seconds kPatience(5);   // root can connect in this time
constexpr seconds kPlacing(20);   // then the attack is measured as far as it is

constexpr const char* kUsage =
    R"(usage: hostile [--only MODE]... [--seconds N] [--mount] [--counts] [--verbose] [--list]

Attacks a gshmd of its own as one user, and measures what another user sees of it. Needs root.

      --only MODE   this attack alone; may be given several times
      --seconds N   length of each measurement (5)
      --mount       with a mount: the bystander uses it too, and the attacks on it run
      --counts      a short run without measurements: attacks and rounds are bounded by counts. All calls of the
                    bystander succeed, and descriptors and files are what they were
      --verbose     says on stderr when an attack is in place, with the process to profile, and shows gshmd's log. With
                    GSHM_LOCK_REPORT=1 in the environment that has the holds of the store lock
      --list        the attacks
  -h, --help        this text

Times are in milliseconds, memory and files in MiB. idle: ping p99 without an attack; floor: while as many processes
as the attack has only use the processors; p99: during the attack. A line ends with the reason if the bar is not met.
)";

volatile sig_atomic_t interrupted = 0;  // processes and mounts are removed before the program ends

struct Options {
    std::vector<std::string> only;
    unsigned seconds = 5;
    bool mount = false;
    bool counts = false;
    bool verbose = false;
};

class Trial {
public:
    Trial(const Attack& attack, const Options& options) : attack_(attack), options_(options) {
        if (!options.counts) scene_.set_patience(kPatience);
    }

    enum class Outcome { met, failed, skipped };
    Outcome run() {
        if (!scene_.begin(options_.mount) || (attack_.kind == Attack::fills_folder && !scene_.restart())) {
            complain("gshmd does not start: " + scene_.log());
            return print();
        }
        {
            // gshmd keeps the threads of connections for the next ones.
            UserProcess connected(kAttacker, [&] { connect_ordinarily(stage()); });
            observe(warm_up_, nullptr);
        }
        UserProcess(kAttacker, [&] { use_ordinarily(stage()); }).wait();
        observe(idle_, nullptr);
        before_ = settled();
        {
            Stage stage = this->stage();
            UserProcess attacker(
                kAttacker,
                [&] {
                    // The kernel shares out the processor time that the attack itself takes. Measured is gshmd's part.
                    setpriority(PRIO_PROCESS, 0, kAttackerNice);
                    attack_.run(stage);
                    stage.hold();
                },
                [&] {
                    if (attack_.prepare != nullptr) attack_.prepare(stage);
                });
            observe(attacked_, &attacker);
            if (!scene_.serves_root()) complain("root is not served");
            if (progress_->skipped[0] == '\0' && !attacker.running()) complain("the attack ended by itself");
        }
        if (progress_->skipped[0] != '\0') {
            printf("%-20s skipped: %s\n", attack_.name, progress_->skipped);
            return Outcome::skipped;
        }
        check_calls();
        if (interrupted || !scene_.running()) return print();
        if (attack_.kind == Attack::fills_folder && !scene_.restart()) complain("gshmd does not start again");
        if (!scene_.remove_names_of_attacker()) complain("root cannot remove what the attacker has left");
        settle();
        if (!options_.counts) observe_floor();
        return print();
    }

private:
    Stage stage() const {
        Stage stage;
        stage.dir = scene_.dir();
        stage.mount = scene_.mount();
        stage.scratch = scene_.folder_of("at");
        stage.golden = std::string(GSHM_SOURCE_DIR) + "/tests/wire/golden/1";
        stage.number = options_.counts ? attack_.few : attack_.number;
        stage.progress = progress_.get();
        return stage;
    }

    // As many processes as the attack has, which only use the processors: what the machine itself adds to a ping.
    void observe_floor() {
        UserProcess busy(kAttacker, [&] {
            setpriority(PRIO_PROCESS, 0, kAttackerNice);
            stage().in_processes(std::max(progress_->processes.load(), 1u), [](unsigned) { use_processor(); });
        });
        observe(floor_, nullptr);
    }

    // Runs the bystander: alone for a while or, with an attacker, until the attack is in place and a while longer.
    void observe(const SharedMemory<Observations>& seen, UserProcess* attacker) {
        const BystanderTask task = {scene_.dir(), scene_.mount(), scene_.folder_of("by"),
                                    options_.counts ? 600'000 : 2'000, seen.get()};
        UserProcess rounds(kBystander, [&] { run_rounds(task); });
        UserProcess pings(kBystander, [&] { run_pings(task); });
        auto until = Clock::now() + seconds(options_.seconds);
        uint64_t rounds_until = 3;
        bool in_place = attacker == nullptr;
        const auto begun = Clock::now();
        auto last_call = begun;
        uint64_t calls = 0;
        for (;;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const auto now = Clock::now();
            if (interrupted) return complain(std::string("interrupted; the bystander is in ") + seen->call);
            if (!scene_.running()) return complain("gshmd has ended");
            if (attacker != nullptr) {
                peak_kib_ = std::max(peak_kib_, scene_.memory_kib());
                if (progress_->skipped[0] != '\0' || !attacker->running()) break;
            }
            if (!in_place && (progress_->in_place || (!options_.counts && now - begun > kPlacing))) {
                in_place = true;
                if (options_.verbose) fprintf(stderr, "%s: in place; gshmd is %d\n", attack_.name, scene_.pid());
                until = now + seconds(options_.seconds);
                rounds_until = seen->rounds + 3;
            }
            if (seen->calls != calls) {
                calls = seen->calls;
                last_call = now;
            }
            if (!options_.counts && now - last_call > kHanging) {
                complain(std::string("the bystander hangs in ") + seen->call);
                break;
            }
            const bool enough = seen->rounds >= rounds_until && (options_.counts || now >= until);
            if (in_place && enough) break;
        }
        seen->stop = true;
        const auto stopped = Clock::now();
        constexpr std::chrono::milliseconds kSlice(100);
        while (!rounds.ends_within(kSlice) || !pings.ends_within(kSlice)) {
            if (interrupted || (!options_.counts && Clock::now() - stopped > kHanging))
                return complain(std::string("the bystander does not end: ") + seen->call);
        }
    }

    void check_calls() {
        if (attacked_->failed > 0)
            complain(std::to_string(attacked_->failed) + " calls failed, first " + attacked_->failure);
        if (idle_->failed > 0) complain("without an attack: " + std::string(idle_->failure));
        if (options_.counts) return;
        if (ping_p99_ms(*attacked_.get()) > kRatio * ping_p99_ms(*idle_.get()) + kAdditionMs) complain("ping p99");
    }

    // Sessions end a moment after their processes.
    Holdings settled() {
        Holdings last = scene_.holdings();
        for (;;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            const Holdings now = scene_.holdings();
            if (interrupted || (now.descriptors == last.descriptors && now.objects == last.objects)) return now;
            last = now;
        }
    }

    void settle() {
        const auto begun = Clock::now();
        for (uint64_t polls = 0;;) {
            after_ = scene_.holdings();
            const bool same = after_.descriptors <= before_.descriptors && after_.files <= before_.files &&
                              after_.objects <= before_.objects;
            const bool slim = after_.memory_kib <= before_.memory_kib + kMemorySlackKib &&
                              after_.file_kib <= before_.file_kib + kFileSlackKib;
            if (same && (slim || options_.counts)) break;
            if (interrupted || (!options_.counts && Clock::now() - begun > kSettling)) {
                complain(!same ? "remain: " + after_.descriptors_beyond(before_) : "memory or bytes of files remain");
                break;
            }
            if (++polls % 200 == 0) {
                fprintf(stderr, "%s: waits for the end of: %s; %ld objects\n", attack_.name,
                        after_.descriptors_beyond(before_).c_str(),
                        static_cast<long>(after_.objects - before_.objects));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        settling_ = Clock::now() - begun;
        if (!options_.counts && after_.log_kib > before_.log_kib + kLogSlackKib) complain("log");
    }

    void complain(const std::string& text) {
        if (!complaint_.empty()) complaint_ += "; ";
        complaint_ += text;
    }

    Outcome print() {
        const double idle = ping_p99_ms(*idle_.get());
        const double floor = ping_p99_ms(*floor_.get());
        const double attacked = ping_p99_ms(*attacked_.get());
        printf("%-20s %7.2f %7.2f %8.2f %6.1f %7" PRIu64 "/%-6" PRIu64 " %8.1f %-14s %8" PRIu64 "/%-8" PRIu64
               " %4" PRIu64 "/%" PRIu64 "/%-5" PRIu64 " %5" PRIu64 "/%-5" PRIu64 " %2" PRIu64 "/%-2" PRIu64 " %3" PRIu64
               "/%-4" PRIu64 " %4" PRIu64 "/%-5" PRIu64 " %5.1f %s%s\n",
               attack_.name, idle, floor, attacked, kRatio * idle + kAdditionMs, attacked_->failed.load(),
               attacked_->calls.load(), static_cast<double>(attacked_->slowest_ns) / 1e6, attacked_->slowest,
               progress_->attempts.load(), progress_->refused.load(), before_.memory_kib >> 10, peak_kib_ >> 10,
               after_.memory_kib >> 10, before_.descriptors, after_.descriptors, before_.files, after_.files,
               before_.file_kib >> 10, after_.file_kib >> 10, before_.log_kib, after_.log_kib,
               std::chrono::duration<double>(settling_).count(),
               complaint_.empty() ? "ok" : "FAILED: ", complaint_.c_str());
        if (options_.verbose) {
            scene_.stop();
            fputs(scene_.log().c_str(), stderr);
        }
        return complaint_.empty() ? Outcome::met : Outcome::failed;
    }

    const Attack& attack_;
    const Options& options_;
    Scene scene_;
    SharedMemory<Progress> progress_;
    SharedMemory<Observations> warm_up_, idle_, attacked_, floor_;
    Holdings before_, after_;
    uint64_t peak_kib_ = 0;
    Clock::duration settling_{};
    std::string complaint_;
};

int run_all(const Options& options) {
    std::vector<const Attack*> chosen;
    for (const auto& attack : attacks()) {
        const bool named = std::ranges::find(options.only, attack.name) != options.only.end();
        if (named || (options.only.empty() && (options.mount || attack.kind != Attack::in_mount)))
            chosen.push_back(&attack);
        if (named && attack.kind == Attack::in_mount && !options.mount) {
            fprintf(stderr, "%s needs --mount\n", attack.name);
            return 2;
        }
    }
    if (chosen.size() < options.only.size()) {
        fprintf(stderr, "no such attack; see --list\n");
        return 2;
    }
    auto missing = Scene::prepare_program();
    if (missing.empty() && options.mount && access("/dev/fuse", R_OK | W_OK) != 0)
        missing = "there is no /dev/fuse that may be opened";
    if (!missing.empty()) {
        printf("skipped: %s\n", missing.c_str());
        return 77;
    }
    printf("%-20s %7s %7s %8s %6s %14s %8s %-14s %17s %-15s %-11s %-5s %-8s %-10s %5s\n", "attack", "idle", "floor",
           "p99", "bar", "failed/calls", "slowest", "", "attempts/refused", "MiB b/peak/a", "descriptors", "files",
           "MiB", "log KiB", "s");
    size_t failed = 0, skipped = 0;
    for (const auto* attack : chosen) {
        const auto outcome = Trial(*attack, options).run();
        failed += outcome == Trial::Outcome::failed;
        skipped += outcome == Trial::Outcome::skipped;
        fflush(stdout);
        if (interrupted) break;
    }
    if (failed > 0) return 1;
    return skipped == chosen.size() ? 77 : 0;
}

}  // namespace
}  // namespace gshm::core::hostile

int main(int argc, char** argv) {
    using namespace gshm::core::hostile;
    Options options;
    const option long_options[] = {
        {"only", required_argument, nullptr, 'o'}, {"seconds", required_argument, nullptr, 's'},
        {"mount", no_argument, nullptr, 'm'},      {"counts", no_argument, nullptr, 'c'},
        {"verbose", no_argument, nullptr, 'v'},    {"list", no_argument, nullptr, 'l'},
        {"help", no_argument, nullptr, 'h'},       {}};
    for (int choice = 0; (choice = getopt_long(argc, argv, "h", long_options, nullptr)) != -1;) {
        switch (choice) {
            case 'o': options.only.emplace_back(optarg); break;
            case 's': options.seconds = static_cast<unsigned>(std::max(atoi(optarg), 1)); break;
            case 'm': options.mount = true; break;
            case 'c': options.counts = true; break;
            case 'v': options.verbose = true; break;
            case 'l':
                for (const auto& attack : attacks()) printf("%-20s %s\n", attack.name, attack.what);
                return 0;
            case 'h': fputs(kUsage, stdout); return 0;
            default: fputs(kUsage, stderr); return 2;
        }
    }
    if (optind < argc) {
        fputs(kUsage, stderr);
        return 2;
    }
    for (int number : {SIGINT, SIGTERM}) signal(number, [](int) { interrupted = 1; });
    return run_all(options);
}
