// Measures the exclusive holds of the store lock, by the code location that locks it. For developers:
// docs/architecture.md.
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
    // No hold is longer in an optimised build.
    static constexpr std::chrono::milliseconds kLong{1};

    struct Line {
        std::string caller;  // "src/daemon/session.cc:66 on_packet CreateObjects"
        uint64_t holds = 0;
        uint64_t long_holds = 0;  // that took longer than kLong
        uint64_t sleeps = 0;      // during which the thread slept
        std::chrono::nanoseconds longest{};
    };
    // One hold. Measured in processor time of the thread, so that the load of the machine has no effect.
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

    // Starts measuring in this process.
    static void start() { is_on_.store(true, std::memory_order_relaxed); }
    static bool is_on() { return is_on_.load(std::memory_order_relaxed); }
    // The longest first.
    static std::vector<Line> lines();
    static void log();

private:
    static inline std::atomic<bool> is_on_ = false;
};

}  // namespace gshm::core
