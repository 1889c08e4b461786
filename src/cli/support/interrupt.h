// For commands that have something to clear away when they are interrupted.
#pragma once

#include <array>
#include <signal.h>

namespace gshm::cli {

// Thrown at the next safe point after a signal; main() then lets that signal end the program.
struct Interrupted {
    int signal;
};

// While one exists, SIGINT, SIGTERM and SIGHUP are noted instead of ending the program; a second one ends it after all.
// Signals that are ignored stay so. One at a time.
class InterruptGuard {
public:
    InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;
    ~InterruptGuard();

    bool is_interrupted() const;
    void throw_if_interrupted() const;

private:
    static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
    std::array<struct sigaction, kSignals.size()> saved_{};
};

// Ends the program as the signal would have; does not return.
[[noreturn]] void end_by(const Interrupted& interrupted);

}  // namespace gshm::cli
