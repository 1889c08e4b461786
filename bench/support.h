// Shared parts of the benchmarks: a daemon of their own, and owners for C handles.
//
// Any failure ends the program with a sentence (exit status 1), since half a result is useless.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <gshm/gshm.h>

namespace gshm::core::bench {

[[noreturn]] inline void die(const std::string& what) {
    std::fprintf(stderr, "bench: %s\n", what.c_str());
    std::exit(1);
}
// For the calls of gshm.h.
inline void check(int status, const char* what) {
    if (status != 0) die(std::string(what) + ": " + std::strerror(-status) + ": " + gshm_last_error());
}
// For system calls.
inline void check_errno(bool good, const char* what) {
    if (!good) die(std::string(what) + ": " + std::strerror(errno));
}

// ---- Time ----------------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

// For UseManualTime: the time from construction to seconds() is the time of the iteration.
class Stopwatch {
public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

private:
    Clock::time_point start_ = Clock::now();
};

// The times of a benchmark's iterations. The tables use their lower quartile: on a machine with other load the mean
// would measure interruptions, which may hit one side of a comparison only.
class Samples {
public:
    void add(double seconds) { seconds_.push_back(seconds); }
    // Also reports to Google Benchmark (UseManualTime).
    void add(benchmark::State& state, double seconds) {
        state.SetIterationTime(seconds);
        add(seconds);
    }
    double quartile_seconds() {
        if (seconds_.empty()) return 0;
        const auto at = seconds_.begin() + static_cast<std::ptrdiff_t>(seconds_.size() / 4);
        std::nth_element(seconds_.begin(), at, seconds_.end());
        return *at;
    }

private:
    std::vector<double> seconds_;
};

// Processor time of this process and the daemon since construction.
class CostMeter {
public:
    explicit CostMeter(pid_t daemon) {
        check_errno(::clock_getcpuclockid(daemon, &daemon_clock_) == 0, "clock_getcpuclockid");
        start_ = now();
    }
    double seconds() const { return now() - start_; }

private:
    static double read(clockid_t clock) {
        timespec time = {};
        check_errno(::clock_gettime(clock, &time) == 0, "clock_gettime");
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    }
    double now() const { return read(CLOCK_PROCESS_CPUTIME_ID) + read(daemon_clock_); }

    clockid_t daemon_clock_ = 0;
    double start_ = 0;
};

// Private memory of a process; objects are shared memory and do not count.
inline uint64_t anonymous_bytes(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    }
    die("/proc/PID/status has no RssAnon");
}

// ---- The daemon ----------------------------------------------------------------------------------------------------

// The folder of gshmd: $GSHM_BIN, or ../bin relative to this program, in a build and in a bundle.
inline std::string bin_folder() {
    if (const char* folder = std::getenv("GSHM_BIN"); folder && *folder) return folder;
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin").string();
}

// A gshmd in a folder of its own, both removed with this object. It also ends with the thread that made it.
class Daemon {
public:
    explicit Daemon(const std::vector<std::string>& devices = {}, const std::vector<std::string>& options = {})
        : options_(options) {
        std::string pattern = (std::filesystem::temp_directory_path() / "gshm-bench-XXXXXX").string();
        check_errno(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
        folder_ = pattern;
        devices_ = devices;
        spawn(devices);
        wait_until_it_serves();
    }
    // Kills gshmd (SIGKILL) and starts another at once. Returns after the start, not when it serves.
    void kill_and_start() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        spawn(devices_);
    }
    void wait_until_it_serves() {
        // A connection shows that it serves; CUDA may take long to start.
        gshm_client* client = nullptr;
        const gshm_connect_options options = {sizeof options, 100, dir().c_str()};
        while (gshm_connect(&options, &client) != 0) {
            if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
                pid_ = -1;
                die("gshmd did not start: " + log());
            }
        }
        gshm_disconnect(client);
    }
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;
    ~Daemon() {
        if (pid_ > 0) {
            ::kill(pid_, SIGTERM);
            ::waitpid(pid_, nullptr, 0);
        }
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    const std::string& dir() const { return dir_; }
    pid_t pid() const { return pid_; }
    std::string log() const {
        std::ifstream file(folder_ + "/log");
        return {std::istreambuf_iterator<char>(file), {}};
    }

private:
    void spawn(const std::vector<std::string>& devices) {
        dir_ = folder_ + "/run";
        const std::string program = bin_folder() + "/gshmd";
        const std::string log_path = folder_ + "/log";
        std::vector<const char*> argv = {program.c_str(), "--dir", dir_.c_str(), "-f"};
        for (const auto& device : devices) argv.insert(argv.end(), {"--device", device.c_str()});
        for (const auto& option : options_) argv.push_back(option.c_str());
        argv.push_back(nullptr);
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        check_errno(pid_ >= 0, "fork");
        if (pid_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // not SIGKILL: its keeper would remain
        if (::getppid() != parent) ::_exit(127);
        const int file = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        ::dup2(file, 1);
        ::dup2(file, 2);
        ::execv(argv[0], const_cast<char**>(argv.data()));
        std::fprintf(stderr, "%s: %s\n", argv[0], std::strerror(errno));
        ::_exit(127);
    }

    std::string folder_;
    std::string dir_;
    std::vector<std::string> devices_;
    std::vector<std::string> options_;
    pid_t pid_ = -1;
};

// ---- Handles -------------------------------------------------------------------------------------------------------

struct Closer {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using Client = std::unique_ptr<gshm_client, Closer>;
using Object = std::unique_ptr<gshm_object, Closer>;
using Listing = std::unique_ptr<gshm_listing, Closer>;

inline Client connect(const Daemon& daemon) {
    const gshm_connect_options options = {sizeof options, 2000, daemon.dir().c_str()};
    gshm_client* client = nullptr;
    check(gshm_connect(&options, &client), "connect");
    return Client(client);
}

inline Object open(gshm_client* client, const char* name, uint32_t flags = 0) {
    gshm_object* object = nullptr;
    check(gshm_open(client, name, flags, &object), name);
    return Object(object);
}

inline gshm_stat_info stat(gshm_client* client, const char* name) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    check(gshm_stat(client, name, &info), name);
    return info;
}

// Many objects, opened and closed by one call each.
class Objects {
public:
    explicit Objects(size_t count) : objects_(count), status_(count) {}
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;
    ~Objects() { close(); }

    void create(gshm_client* client, const std::vector<gshm_create_spec>& specs) {
        check(gshm_create_batch(client, specs.data(), specs.size(), objects_.data(), status_.data()), "create_batch");
    }
    void open(gshm_client* client, const char* const* names, uint32_t flags = 0) {
        check(gshm_open_batch(client, names, objects_.size(), flags, objects_.data(), status_.data()), "open_batch");
    }
    void seal() { check(gshm_seal_batch(objects_.data(), objects_.size(), status_.data()), "seal_batch"); }
    void close() {
        gshm_close_batch(objects_.data(), objects_.size());
        objects_.assign(objects_.size(), nullptr);
    }

private:
    std::vector<gshm_object*> objects_;
    std::vector<int> status_;
};

// ---- Names ---------------------------------------------------------------------------------------------------------

// Names and the array of C strings for batch calls.
class Names {
public:
    Names(const std::string& prefix, size_t count) {
        for (size_t i = 0; i < count; ++i) texts_.push_back(prefix + std::to_string(i));
        for (const auto& text : texts_) pointers_.push_back(text.c_str());
    }
    Names(const Names&) = delete;
    Names& operator=(const Names&) = delete;

    size_t size() const { return pointers_.size(); }
    const char* operator[](size_t index) const { return pointers_[index]; }
    const char* const* data() const { return pointers_.data(); }
    // Shuffles the order of use, the same in every run, so that neighbours in memory are not used in sequence.
    void shuffle() { std::shuffle(pointers_.begin(), pointers_.end(), std::mt19937_64(1)); }

private:
    std::vector<std::string> texts_;
    std::vector<const char*> pointers_;
};

inline gshm_create_spec spec(const char* name, uint64_t size_bytes, const char* device, uint32_t flags = 0) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name;
    spec.size_bytes = size_bytes;
    spec.device = device;
    spec.flags = flags;
    return spec;
}

inline std::vector<gshm_create_spec> specs(const Names& names, uint64_t size_bytes, const char* device,
                                           uint32_t flags = 0) {
    std::vector<gshm_create_spec> all;
    for (size_t i = 0; i < names.size(); ++i) all.push_back(spec(names[i], size_bytes, device, flags));
    return all;
}

// Makes sealed, permanent objects without leases.
inline void populate(gshm_client* client, const Names& names, uint64_t size_bytes, const char* device) {
    Objects objects(names.size());
    objects.create(client, specs(names, size_bytes, device, GSHM_NO_MAP));
    objects.seal();
}

// Opens one object of every extent of the names, so that this client keeps all of them mapped.
inline std::vector<Object> hold_extents(gshm_client* client, const Names& names) {
    std::vector<gshm_stat_info> infos(names.size());
    std::vector<int> status(names.size());
    infos[0].struct_size = sizeof infos[0];
    check(gshm_stat_batch(client, names.data(), names.size(), infos.data(), status.data()), "stat_batch");
    std::vector<std::pair<uint64_t, const char*>> found;
    for (size_t i = 0; i < names.size(); ++i) found.emplace_back(infos[i].extent, names[i]);
    std::sort(found.begin(), found.end());
    std::vector<Object> held;
    for (size_t i = 0; i < found.size(); ++i) {
        if (i == 0 || found[i].first != found[i - 1].first) held.push_back(open(client, found[i].second));
    }
    return held;
}

// ---- The device ----------------------------------------------------------------------------------------------------

// $GSHM_BENCH_DEVICE, else the daemon's first device, which is a GPU if there is one.
inline gshm_device_info choose_device(gshm_client* client) {
    std::vector<gshm_device_info> devices(16);
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    check(gshm_devices(client, devices.data(), devices.size(), &count), "devices");
    devices.resize(std::min(count, devices.size()));
    const char* wanted = std::getenv("GSHM_BENCH_DEVICE");
    for (const auto& device : devices) {
        if (!wanted || !*wanted || std::string(wanted) == device.name) return device;
    }
    die(std::string("gshmd has no device ") + wanted);
}
inline bool is_cuda(const gshm_device_info& device) {
    return std::strncmp(device.name, "cuda", 4) == 0;
}
// For the label that bench/run prints above its table; no comma, since it passes through CSV.
inline std::string describe(const gshm_device_info& device) {
    std::string text = std::string(device.name) + " - " + device.model;
    std::replace(text.begin(), text.end(), ',', ';');
    return text;
}

// Registers and runs the benchmarks of `add`; returns the exit status.
template <typename Add>
int run(int argc, char** argv, Add&& add) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    add();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

}  // namespace gshm::core::bench
