#include "progress.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/core.h>

#include "text.h"

namespace gshm::cli {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{64} << 20;
constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr size_t kBarWidth = 24;
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string what, uint64_t total_bytes, bool enabled)
    : what_(printable(what)),
      total_bytes_(total_bytes),
      visible_(enabled && total_bytes >= kLargeBytes && ::isatty(STDERR_FILENO)) {}

Progress::~Progress() {
    clear();
}

void Progress::clear() {
    if (visible_) fmt::print(stderr, "{}", kClearLine);
}

void Progress::update(uint64_t done_bytes) {
    const auto now = Clock::now();
    if (!visible_ || now - shown_ < kInterval) return;
    shown_ = now;
    const double part = std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes_));
    const double rate = static_cast<double>(done_bytes) / seconds();
    std::string bar(static_cast<size_t>(part * kBarWidth), '=');
    bar.resize(kBarWidth, ' ');
    fmt::print(stderr, "{}{}: [{}] {:.0f}%, {} of {}, {}/s", kClearLine, what_, bar, 100 * part, size_text(done_bytes),
               size_text(total_bytes_), size_text(static_cast<uint64_t>(rate)));
    if (rate > 0) fmt::print(stderr, ", {:.0f} s left", seconds() * (1 - part) / std::max(part, 1e-9));
    std::fflush(stderr);
}

double Progress::seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace gshm::cli
