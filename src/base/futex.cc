#include "base/futex.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gshm::core {
namespace {

// For kernels that cannot wait for two words at once (before 5.16).
constexpr std::chrono::nanoseconds kLookAgain = std::chrono::milliseconds(1);

timespec to_timespec(std::chrono::nanoseconds time) {
    return {static_cast<time_t>(time.count() / 1'000'000'000), static_cast<long>(time.count() % 1'000'000'000)};
}

void wait_for_one(const Awaited& awaited, std::chrono::nanoseconds timeout) {
    const timespec relative = to_timespec(timeout);
    syscall(SYS_futex, awaited.word, FUTEX_WAIT, awaited.value, &relative, nullptr, 0);
}

}  // namespace

void wait_for_any(std::span<const Awaited> words, std::chrono::nanoseconds timeout) {
    if (words.size() == 1) return wait_for_one(words[0], timeout);
    futex_waitv waits[2] = {};
    for (size_t i = 0; i < 2; ++i) {
        waits[i].uaddr = reinterpret_cast<uintptr_t>(words[i].word);
        waits[i].val = words[i].value;
        waits[i].flags = FUTEX_32;
    }
    timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const auto end = std::chrono::seconds(until.tv_sec) + std::chrono::nanoseconds(until.tv_nsec) + timeout;
    until = to_timespec(end);
    if (syscall(SYS_futex_waitv, waits, 2, 0, &until, CLOCK_MONOTONIC) >= 0 || errno != ENOSYS) return;
    wait_for_one(words[0], std::min(timeout, kLookAgain));
}

void wake(const std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gshm::core
