#include "cli/support/interrupt.h"

#include <atomic>
#include <unistd.h>

namespace gshm::cli {
namespace {

std::atomic<int> noted_signal = 0;  // written by a signal handler, read by every thread
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
    noted_signal = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
    noted_signal = 0;
    struct sigaction action{};
    action.sa_handler = note;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (size_t i = 0; i < kSignals.size(); ++i) {
        ::sigaction(kSignals[i], nullptr, &saved_[i]);
        if (saved_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
}

InterruptGuard::~InterruptGuard() {
    if (is_complete_) return;
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &saved_[i], nullptr);
}

bool InterruptGuard::is_interrupted() const {
    return noted_signal != 0;
}

void InterruptGuard::throw_if_interrupted() const {
    if (is_interrupted()) throw Interrupted{noted_signal};
}

void end_by(const Interrupted& interrupted) {
    ::signal(interrupted.signal, SIG_DFL);
    ::raise(interrupted.signal);
    ::_exit(128 + interrupted.signal);
}

}  // namespace gshm::cli
