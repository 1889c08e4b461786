// Several processes repeatedly create, seal, get and delete vineyard buffers; checks that nothing grows:
//
//   soak_bench [--cycles N] [--processes N] [--live MIB] [--slack MIB] [--settle yes] [--device NAME]
//
// A cycle creates a buffer (95 % of 64 B to 1 MiB, the others up to 16 MiB, log-uniform), writes a few of its bytes,
// seals it, gets it by its id, gets a buffer of another process, and deletes random buffers of its own until its share
// of the live set fits again. All processes pause ten times, and these figures are taken:
//  - fragmentation: the device's used_bytes compared with the live set, each buffer rounded up to the allocation unit
//    (256 bytes in a slab, the device's granularity above 1 MiB). At most 1.15 at every pause, plus --slack for live
//    sets that are small compared with a slab of 64 MiB. One thread of gshmd zeroes and frees deleted buffers
//    asynchronously. If that thread gets no processor, freed memory accumulates and new slabs are made, which end only
//    with the buffers in them. With --settle yes (for a test on a loaded machine) one of the last three pauses within
//    the bound suffices;
//  - memory (RssAnon) and descriptors of gshmd, and of the processes. None may be larger at the end than at the first
//    pause, apart from random variation of the live set.
// Exit status 1 if a figure is exceeded, or if unexpected objects exist.
#include <atomic>
#include <cmath>
#include <sys/mman.h>
#include <vineyard.h>

#include "support.h"

namespace gshm::core::bench {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kPauses = 10;
constexpr size_t kShown = 64;  // buffers of each process that the others see

struct Settings {
    uint64_t cycles = 1'000'000;
    int processes = 8;
    uint64_t live_bytes = 1024 * kMiB;
    uint64_t slack_bytes = 0;
    bool settle = false;
    std::string device;
};

struct alignas(64) WorkerReport {
    std::atomic<int> pauses;
    uint64_t live_buffers;
    uint64_t live_bytes;     // requested sizes
    uint64_t rounded_bytes;  // rounded to the allocation unit
    uint64_t memory_bytes;
    uint64_t descriptors;
    uint64_t missed;  // buffers of others that were deleted before the get
    std::atomic<vineyard::ObjectID> shown[kShown];
};
struct Shared {
    std::atomic<int> may_go_on;  // up to that pause
    WorkerReport workers[64];
};

// ---- Resources of a process ----------------------------------------------------------------------------------------

uint64_t anonymous_bytes(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    die("no RssAnon of process " + std::to_string(pid));
}
uint64_t descriptors(pid_t pid) {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
    return static_cast<uint64_t>(std::distance(begin(all), end(all)));
}

// ---- One process ---------------------------------------------------------------------------------------------------

void check_status(const vineyard::Status& status, const char* what) {
    if (!status.ok()) die(std::string(what) + ": " + status.ToString());
}

class Worker {
public:
    Worker(const Settings& settings, Shared& shared, int number, const std::string& dir, uint64_t granularity)
        : settings_(settings),
          shared_(shared),
          report_(shared.workers[number]),
          number_(number),
          granularity_(granularity),
          random_(static_cast<uint64_t>(number) + 1) {
        check_status(client_.Connect(dir), "connect");
    }
    void run() {
        const uint64_t share = settings_.cycles / static_cast<uint64_t>(settings_.processes);
        for (int pause = 1; pause <= kPauses; ++pause) {
            const uint64_t until = share * static_cast<uint64_t>(pause) / kPauses;
            for (; done_ < until; ++done_) cycle();
            report_.memory_bytes = anonymous_bytes(getpid());
            report_.descriptors = descriptors(getpid());
            report_.pauses = pause;
            while (shared_.may_go_on < pause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

private:
    struct Live {
        vineyard::ObjectID id;
        uint64_t size;
        size_t shown_at;
    };

    uint64_t random_size() {
        const bool small = random_() % 20 != 0;
        const double from = std::log2(small ? 64.0 : 1.0 * kMiB);
        const double to = std::log2(small ? 1.0 * kMiB : 16.0 * kMiB);
        return static_cast<uint64_t>(std::exp2(std::uniform_real_distribution<>(from, to)(random_)));
    }
    uint64_t rounded(uint64_t size) const {
        const uint64_t to = size <= kMiB ? 256 : granularity_;
        return (size + to - 1) / to * to;
    }
    void count(const Live& buffer, bool added) {
        const uint64_t sign = added ? 1 : uint64_t(-1);
        report_.live_buffers += sign;
        report_.live_bytes += sign * buffer.size;
        report_.rounded_bytes += sign * rounded(buffer.size);
    }
    void cycle() {
        Live made{0, random_size(), done_ % kShown};
        make_room(made.size);
        {
            vineyard::Payload payload;
            std::shared_ptr<vineyard::MutableBuffer> buffer;
            check_status(client_.CreateGPUBuffer(made.size, made.id, payload, buffer, settings_.device), "create");
            if (done_ % 64 == 0 && made.size <= 64 << 10) {
                vineyard::CUDABufferMirror mirror(*buffer);
                std::memcpy(mirror.mutable_data(), &made.id, std::min<size_t>(made.size, sizeof made.id));
            }
            check_status(client_.Seal(made.id), "seal");
        }
        std::shared_ptr<vineyard::Buffer> got;
        check_status(client_.GetGPUBuffer(made.id, false, got), "get");
        report_.shown[made.shown_at] = made.id;
        live_.push_back(made);
        count(made, true);

        const auto& other = shared_.workers[random_() % static_cast<uint64_t>(settings_.processes)];
        if (const vineyard::ObjectID id = other.shown[random_() % kShown]) {
            const auto status = client_.GetGPUBuffer(id, false, got);
            if (status.IsObjectNotExists()) ++report_.missed;
            else check_status(status, "get another's");
        }
    }
    void make_room(uint64_t size) {
        while (!live_.empty() &&
               report_.live_bytes + size > settings_.live_bytes / static_cast<uint64_t>(settings_.processes)) {
            std::swap(live_[random_() % live_.size()], live_.back());
            vineyard::ObjectID id = live_.back().id;
            check_status(client_.DelData(id), "delete");
            report_.shown[live_.back().shown_at].compare_exchange_strong(id, 0);
            count(live_.back(), false);
            live_.pop_back();
        }
    }

    const Settings& settings_;
    Shared& shared_;
    WorkerReport& report_;
    const int number_;
    const uint64_t granularity_;
    std::mt19937_64 random_;
    vineyard::Client client_;
    std::vector<Live> live_;
    uint64_t done_ = 0;
};

// ---- All processes -------------------------------------------------------------------------------------------------

struct Measured {
    uint64_t live_buffers = 0;
    uint64_t live_bytes = 0;
    uint64_t rounded_bytes = 0;
    uint64_t used_bytes = 0;
    uint64_t daemon_memory = 0;
    uint64_t daemon_descriptors = 0;
    uint64_t extents = 0;
    uint64_t memory = 0;       // of the largest process
    uint64_t descriptors = 0;  // of the process with most
};

gshm_device_info device_info(gshm_client* client, const std::string& name) {
    std::vector<gshm_device_info> devices(16);
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    check(gshm_devices(client, devices.data(), devices.size(), &count), "devices");
    for (size_t i = 0; i < std::min(count, devices.size()); ++i)
        if (name == devices[i].name) return devices[i];
    die("gshmd has no device " + name);
}

bool is_fragmented(const Settings& settings, const Measured& now) {
    return static_cast<double>(now.used_bytes) >
           1.15 * static_cast<double>(now.rounded_bytes) + static_cast<double>(settings.slack_bytes);
}

Measured look(const Settings& settings, const Shared& shared, gshm_client* client, const Daemon& daemon) {
    Measured now;
    for (int i = 0; i < settings.processes; ++i) {
        const WorkerReport& worker = shared.workers[i];
        now.live_buffers += worker.live_buffers;
        now.live_bytes += worker.live_bytes;
        now.rounded_bytes += worker.rounded_bytes;
        now.memory = std::max(now.memory, worker.memory_bytes);
        now.descriptors = std::max(now.descriptors, worker.descriptors);
    }
    // Threads of gshmd zero and free released memory: waits until usage is low enough, or has not changed for two
    // seconds.
    gshm_daemon_info info = {};
    info.struct_size = sizeof info;
    for (int unchanged = 0; unchanged < 100; ++unchanged) {
        check(gshm_daemon(client, &info), "daemon");
        const uint64_t used = device_info(client, settings.device).used_bytes;
        if (std::exchange(now.used_bytes, used) != used) unchanged = 0;
        if (info.objects == now.live_buffers && !is_fragmented(settings, now)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (info.objects != now.live_buffers)
        die("gshmd has " + std::to_string(info.objects) + " objects, and " + std::to_string(now.live_buffers) +
            " buffers are alive");
    now.extents = info.extents;
    now.daemon_memory = anonymous_bytes(daemon.pid());
    now.daemon_descriptors = descriptors(daemon.pid());
    return now;
}

// The live set varies randomly, and an allocator needs time to settle: an eighth, plus a constant.
bool has_grown(const char* what, uint64_t first, uint64_t last, uint64_t little) {
    const bool grown = last > first + first / 8 + little;
    if (grown)
        std::printf("%s: has grown from %llu to %llu\n", what, static_cast<unsigned long long>(first),
                    static_cast<unsigned long long>(last));
    return grown;
}

int soak(const Settings& asked) {
    Settings settings = asked;
    const Daemon daemon;  // all GPUs and host
    auto client = connect(daemon);
    if (settings.device.empty()) settings.device = choose_device(client.get()).name;
    const uint64_t granularity = device_info(client.get(), settings.device).granularity_bytes;
    auto* shared =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    check_errno(shared != MAP_FAILED, "mmap");

    std::vector<pid_t> children;
    const pid_t parent = getpid();
    for (int i = 0; i < settings.processes; ++i) {
        const pid_t child = fork();
        check_errno(child >= 0, "fork");
        if (child == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(127);
            {
                Worker worker(settings, *shared, i, daemon.dir(), granularity);
                worker.run();
            }
            ::_exit(0);
        }
        children.push_back(child);
    }
    const auto wait_for_pause = [&](int pause) {
        for (size_t i = 0; i < children.size(); ++i) {
            while (shared->workers[i].pauses < pause) {
                int status = 0;
                if (::waitpid(children[i], &status, WNOHANG) == children[i])
                    die("a process has ended: " + daemon.log());
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    };

    std::printf("%s: %llu cycles in %d processes, live set up to %llu MiB\n", settings.device.c_str(),
                static_cast<unsigned long long>(settings.cycles), settings.processes,
                static_cast<unsigned long long>(settings.live_bytes / kMiB));
    std::printf("%9s %8s %9s %9s %9s %6s %12s %8s %11s %8s\n", "cycles", "buffers", "live MiB", "rounded", "used",
                "ratio", "gshmd KiB", "its fds", "process KiB", "its fds");
    const Stopwatch watch;
    Measured first;
    bool good = true;
    double worst = 0;
    int fragmented_since = 0;  // pauses
    for (int pause = 1; pause <= kPauses; ++pause) {
        wait_for_pause(pause);
        const Measured now = look(settings, *shared, client.get(), daemon);
        const double ratio = static_cast<double>(now.used_bytes) / static_cast<double>(now.rounded_bytes);
        worst = std::max(worst, ratio);
        std::printf("%9llu %8llu %9.1f %9.1f %9.1f %6.3f %12llu %8llu %11llu %8llu\n",
                    static_cast<unsigned long long>(settings.cycles * static_cast<uint64_t>(pause) / kPauses),
                    static_cast<unsigned long long>(now.live_buffers), static_cast<double>(now.live_bytes) / kMiB,
                    static_cast<double>(now.rounded_bytes) / kMiB, static_cast<double>(now.used_bytes) / kMiB, ratio,
                    static_cast<unsigned long long>(now.daemon_memory >> 10),
                    static_cast<unsigned long long>(now.daemon_descriptors),
                    static_cast<unsigned long long>(now.memory >> 10),
                    static_cast<unsigned long long>(now.descriptors));
        std::fflush(stdout);
        fragmented_since = is_fragmented(settings, now) ? fragmented_since + 1 : 0;
        if (fragmented_since > 0) std::printf("more than the bound\n");
        if (fragmented_since >= (settings.settle ? 3 : 1) && (!settings.settle || pause == kPauses)) good = false;
        if (pause == 1) first = now;
        if (pause == kPauses) {
            good = !has_grown("gshmd's memory", first.daemon_memory, now.daemon_memory, 4 * kMiB) && good;
            good = !has_grown("gshmd's descriptors", first.daemon_descriptors * now.extents / first.extents,
                              now.daemon_descriptors, 16) &&
                   good;
            good = !has_grown("a process's memory", first.memory, now.memory, 4 * kMiB) && good;
            good = !has_grown("a process's descriptors", first.descriptors, now.descriptors, 8) && good;
        }
        shared->may_go_on = pause;
    }
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (status != 0) die("a process did not end well");
    }
    uint64_t missed = 0;
    for (int i = 0; i < settings.processes; ++i) missed += shared->workers[i].missed;
    std::printf("%.0f cycles a second; %llu of the others' buffers were gone when they were wanted\n",
                static_cast<double>(settings.cycles) / watch.seconds(), static_cast<unsigned long long>(missed));
    std::printf("used at most %.3f of the live set; %s at most 1.15 and %llu MiB, and nothing has grown: %s\n", worst,
                settings.settle ? "in the end" : "always", static_cast<unsigned long long>(settings.slack_bytes / kMiB),
                good ? "yes" : "NO");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    gshm::core::bench::Settings settings;
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (i + 1 == argc) gshm::core::bench::die(option + " needs a value");
        const char* value = argv[i + 1];
        if (option == "--device") settings.device = value;
        else if (option == "--settle") settings.settle = std::string(value) == "yes";
        else if (option == "--cycles") settings.cycles = std::strtoull(value, nullptr, 10);
        else if (option == "--processes") settings.processes = std::clamp(std::atoi(value), 1, 64);
        else if (option == "--live") settings.live_bytes = std::strtoull(value, nullptr, 10) * gshm::core::bench::kMiB;
        else if (option == "--slack")
            settings.slack_bytes = std::strtoull(value, nullptr, 10) * gshm::core::bench::kMiB;
        else
            gshm::core::bench::die(
                "usage: soak_bench [--cycles N] [--processes N] [--live MIB] [--slack MIB] [--settle yes] "
                "[--device NAME]");
    }
    return gshm::core::bench::soak(settings);
}
