#include "cli/support/progress.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{64} << 20;
constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr size_t kBarWidth = 24;
constexpr const char* kClearLine = "\r\x1b[K";
constexpr double kGigabyte = 1e9;

// "8 s", "2:05", "1:00:07"
std::string duration_text(double seconds) {
    const auto whole = static_cast<uint64_t>(std::min(seconds + 0.5, 359999.0));
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string what, uint64_t total_bytes, bool enabled)
    : what_(printable(what)),
      total_bytes_(total_bytes),
      visible_(enabled && (total_bytes == 0 || total_bytes >= kLargeBytes) && ::isatty(STDERR_FILENO)) {}

Progress::~Progress() {
    clear();
}

void Progress::clear() {
    if (shows_) fmt::print(stderr, "{}", kClearLine);
    shows_ = false;
}

void Progress::update(uint64_t done_bytes) {
    const auto now = Clock::now();
    if (!visible_ || now - shown_ < kInterval) return;
    shown_ = now;
    shows_ = true;
    const double rate = static_cast<double>(done_bytes) / seconds();
    if (total_bytes_ == 0) {
        fmt::print(stderr, "{}{}: {}, {:.2f} GB/s", kClearLine, what_, size_text(done_bytes), rate / kGigabyte);
    } else {
        const double part = std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes_));
        std::string bar(static_cast<size_t>(part * kBarWidth), '=');
        bar.resize(kBarWidth, ' ');
        fmt::print(stderr, "{}{}: [{}] {:.0f}%, {} of {}, {:.2f} GB/s", kClearLine, what_, bar, 100 * part,
                   size_text(done_bytes), size_text(total_bytes_), rate / kGigabyte);
        if (part > 0) fmt::print(stderr, ", {} left", duration_text(seconds() * (1 - part) / part));
    }
    std::fflush(stderr);
}

double Progress::seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace gshm::cli
