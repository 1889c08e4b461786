// For commands that clean up after an interruption.
#pragma once

#include <array>
#include <signal.h>

namespace gshm::cli {

// Thrown at the next safe point after a signal. main() then ends the program with that signal.
struct Interrupted {
    int signal;
};

// While a guard exists, the first SIGINT, SIGTERM or SIGHUP is recorded, and a second one ends the program. Ignored
// signals stay ignored. At most one guard exists at a time.
class InterruptGuard {
public:
    InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;
    ~InterruptGuard();

    bool is_interrupted() const;
    void throw_if_interrupted() const;
    // Until the program ends, a first signal has no effect: the work is complete, and the exit status says so.
    void set_complete() { is_complete_ = true; }

private:
    static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
    std::array<struct sigaction, kSignals.size()> saved_{};
    bool is_complete_ = false;
};

// Ends the program as the signal would have done.
[[noreturn]] void end_by(const Interrupted& interrupted);

}  // namespace gshm::cli
