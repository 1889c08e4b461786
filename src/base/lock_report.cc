#include "base/lock_report.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <string_view>
#include <sys/resource.h>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace gshm::core {
namespace {

// The caller's file and line, and its description.
using Key = std::pair<std::pair<std::string_view, uint32_t>, std::string_view>;
struct Entry {
    std::source_location caller;
    LockReport::Line line;
};

Mutex entries_mutex;

std::map<Key, Entry>& entries() REQUIRES(entries_mutex) {
    static std::map<Key, Entry> all;
    return all;
}

int64_t cpu_ns() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t sleeps() {
    rusage used = {};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}

// "src/fuse/files.cc:230 read", from the path and the declaration in source_location.
std::string describe(const std::source_location& caller, std::string_view what) {
    std::string_view file = caller.file_name();
    if (const size_t at = file.rfind("src/"); at != file.npos) file.remove_prefix(at);
    std::string_view function = caller.function_name();
    function = function.substr(0, function.find('('));
    if (const size_t at = function.find_last_of(": "); at != function.npos) function.remove_prefix(at + 1);
    return fmt::format("{}:{} {}{}{}", file, caller.line(), function, what.empty() ? "" : " ", what);
}

}  // namespace

void LockReport::Hold::describe(const std::source_location& caller, const char* what) {
    caller_ = caller;
    what_ = what;
}

void LockReport::Hold::begin(const std::source_location& caller) {
    describe(caller, nullptr);
    sleeps_ = sleeps();
    cpu_ns_ = cpu_ns();
}

void LockReport::Hold::end() const {
    const std::chrono::nanoseconds time(cpu_ns() - cpu_ns_);
    const bool slept = sleeps() != sleeps_;
    MutexLock lock(entries_mutex);
    const std::string_view what = what_ == nullptr ? "" : what_;
    Entry& entry = entries()[{{caller_.file_name(), caller_.line()}, what}];
    entry.caller = caller_;
    ++entry.line.holds;
    if (time > kLong) ++entry.line.long_holds;
    if (slept) ++entry.line.sleeps;
    entry.line.longest = std::max(entry.line.longest, time);
}

std::vector<LockReport::Line> LockReport::lines() {
    std::vector<Line> all;
    MutexLock lock(entries_mutex);
    for (const auto& [key, entry] : entries()) {
        all.push_back(entry.line);
        all.back().caller = describe(entry.caller, key.second);
    }
    std::ranges::sort(all, std::ranges::greater{}, &Line::longest);
    return all;
}

void LockReport::log() {
    for (const Line& line : lines()) {
        log_info("store lock: {}: {} holds, {} longer than {} ms, {} with a sleep, longest {:.3f} ms", line.caller,
                 line.holds, line.long_holds, kLong.count(), line.sleeps,
                 std::chrono::duration<double, std::milli>(line.longest).count());
    }
}

}  // namespace gshm::core
