#include "progress.h"

#include <unistd.h>

#include <fmt/core.h>

#include "text.h"

namespace gshm::cli {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{64} << 20;
constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string what, uint64_t total_bytes, bool enabled)
    : what_(printable(what)),
      total_bytes_(total_bytes),
      visible_(enabled && total_bytes >= kLargeBytes && ::isatty(STDERR_FILENO)) {}

Progress::~Progress() {
    if (visible_) fmt::print(stderr, "{}", kClearLine);
}

void Progress::update(uint64_t done_bytes) {
    const auto now = Clock::now();
    if (!visible_ || now - shown_ < kInterval) return;
    shown_ = now;
    const double rate = static_cast<double>(done_bytes) / seconds();
    fmt::print(stderr, "{}{}: {} of {}, {:.0f}%, {}/s", kClearLine, what_, size_text(done_bytes),
               size_text(total_bytes_), 100.0 * static_cast<double>(done_bytes) / static_cast<double>(total_bytes_),
               size_text(static_cast<uint64_t>(rate)));
    std::fflush(stderr);
}

double Progress::seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace gshm::cli
