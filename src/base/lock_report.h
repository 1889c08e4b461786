// How long the store lock is held exclusively, by the place in the code that locks it. For developers: docs/architecture.md.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace gshm::core {

class LockReport {
public:
    // Nothing under the lock takes longer, in an optimised build.
    static constexpr std::chrono::milliseconds kLong{1};

    struct Line {
        std::string caller;  // "src/daemon/session.cc:66 on_packet CreateObjects"
        uint64_t holds = 0;
        uint64_t long_holds = 0;               // that took longer than kLong
        uint64_t sleeps = 0;                   // during which the thread slept
        std::chrono::nanoseconds longest{};
    };
    // One hold. Times are of the thread's processor time, so that a busy machine makes no difference.
    class Hold {
    public:
        void begin(const std::source_location& caller);
        void describe(const std::source_location& caller, const char* what);
        void end() const;

    private:
        std::source_location caller_;
        const char* what_ = nullptr;
        int64_t cpu_ns_ = 0;
        int64_t sleeps_ = 0;
    };

    // Measures from now on, in this process.
    static void start() { is_on_.store(true, std::memory_order_relaxed); }
    static bool is_on() { return is_on_.load(std::memory_order_relaxed); }
    // The longest first.
    static std::vector<Line> lines();
    static void log();

private:
    static inline std::atomic<bool> is_on_ = false;
};

}  // namespace gshm::core
