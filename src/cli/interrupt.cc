#include "interrupt.h"

#include <unistd.h>

namespace gshm::cli {
namespace {

volatile sig_atomic_t noted_signal = 0;  // all that a handler may touch

void note(int signal) {
    noted_signal = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
    noted_signal = 0;
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (size_t i = 0; i < kSignals.size(); ++i) {
        ::sigaction(kSignals[i], nullptr, &saved_[i]);
        if (saved_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
}

InterruptGuard::~InterruptGuard() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &saved_[i], nullptr);
}

void InterruptGuard::throw_if_interrupted() const {
    if (noted_signal != 0) throw Interrupted{noted_signal};
}

void end_by(const Interrupted& interrupted) {
    ::signal(interrupted.signal, SIG_DFL);
    ::raise(interrupted.signal);
    ::_exit(128 + interrupted.signal);
}

}  // namespace gshm::cli
