#include "daemon/process_metrics.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gshm::core {
namespace {

// Fields of /proc/self/stat, as numbered in proc(5), from the third on.
struct Stat {
    static constexpr size_t kFirst = 3;
    std::array<double, 25> fields = {};
    double operator[](size_t number) const { return fields[number]; }
};

// None: no descriptor is free, as in the functions below.
std::optional<Stat> read_stat() {
    std::string line;
    std::getline(std::ifstream("/proc/self/stat"), line);
    Stat stat;
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream rest(line.substr(name_end + 1));
    std::string field;
    for (size_t i = Stat::kFirst; i < stat.fields.size() && rest >> field; ++i) {
        stat.fields[i] = std::strtod(field.c_str(), nullptr);
    }
    return stat;
}

double ticks_a_second() {
    return static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::optional<double> boot_time() {
    std::ifstream file("/proc/stat");
    for (std::string word; file >> word;) {
        double seconds = 0;
        if (word == "btime" && file >> seconds) return seconds;
    }
    return std::nullopt;
}

std::optional<double> open_descriptors() {
    struct stat folder = {};
    // Linux 6.2 and newer have their number there.
    if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0) return static_cast<double>(folder.st_size);
    std::error_code error;
    const std::filesystem::directory_iterator entries("/proc/self/fd", error);
    if (error) return std::nullopt;
    return static_cast<double>(std::distance(begin(entries), end(entries)));
}

}  // namespace

std::optional<double> process_start_time() {
    constexpr size_t kStartTime = 22;
    static std::optional<double> start;  // the boot time changes with the clock
    if (start) return start;
    const auto boot = boot_time();
    const auto stat = read_stat();
    if (boot && stat) start = *boot + (*stat)[kStartTime] / ticks_a_second();
    return start;
}

void add_process_metrics(http::MetricSet& metrics) {
    constexpr size_t kUserTime = 14;
    constexpr size_t kSystemTime = 15;
    constexpr size_t kVirtualBytes = 23;
    constexpr size_t kResidentPages = 24;
    const auto stat = read_stat();
    const auto start_time = process_start_time();
    const auto descriptors_open = open_descriptors();
    rlimit descriptors = {};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    if (stat) {
        metrics.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
        metrics.add(((*stat)[kUserTime] + (*stat)[kSystemTime]) / ticks_a_second());
        metrics.gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
        metrics.add((*stat)[kResidentPages] * static_cast<double>(sysconf(_SC_PAGESIZE)));
        metrics.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");
        metrics.add((*stat)[kVirtualBytes]);
    }
    if (descriptors_open) {
        metrics.gauge("process_open_fds", "Number of open file descriptors.");
        metrics.add(*descriptors_open);
    }
    metrics.gauge("process_max_fds", "Maximum number of open file descriptors.");
    metrics.add(static_cast<double>(descriptors.rlim_cur));
    if (start_time) {
        metrics.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
        metrics.add(*start_time);
    }
}

}  // namespace gshm::core
