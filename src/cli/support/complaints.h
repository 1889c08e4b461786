// Failures of single items: each is reported, the others continue, and the exit code is that of the first.
#pragma once

#include <cerrno>
#include <string>

#include "cli/support/context.h"

namespace gshm::cli {

class Complaints {
public:
    explicit Complaints(const Context& context) : context_(context) {}

    // Throws the failure instead if the daemon is gone, since the other items would fail too.
    void fail(const Failure& failure) {
        if (failure.exit_code() == ExitCode::no_daemon) throw failure;
        context_.report(failure);
        note(static_cast<int>(failure.exit_code()));
    }
    // Reports a Failure of the body and returns normally. Rethrows a usage error.
    template <typename Body>
    void guard(Body&& body) {
        try {
            body();
        } catch (const Failure& failure) {
            if (failure.exit_code() == ExitCode::usage && failure.code() == EINVAL) throw;
            fail(failure);
        }
    }
    void warn(const std::string& message) const { context_.warn(message); }
    void note(int exit_code) {
        if (exit_code_ == 0) exit_code_ = exit_code;
    }
    int exit_code() const { return exit_code_; }

private:
    const Context& context_;
    int exit_code_ = 0;
};

}  // namespace gshm::cli
