// Errors: gshm.hpp's Result inside, 0 or -errno (and a log line) at the C interface.
#pragma once

#include <new>

#include "log.h"
#include <gshm/gshm.hpp>

namespace gshm::usrbio {

// The value of a Result, or a return with its error.
#define TRY(...)                                       \
    ({                                                 \
        auto tried_ = (__VA_ARGS__);                   \
        if (!tried_) return std::move(tried_).error(); \
        std::move(tried_).value();                     \
    })

inline Result<void> check_argument(bool good, const char* what) {
    if (good) return {};
    return Error{EINVAL, what};
}

// Runs the body of a C function. No exception leaves it.
template <typename Body>
int guarded(const char* call, Body&& body) {
    try {
        Result<void> done = body();
        if (done) return 0;
        log_error("{}: {} ({})", call, done.error().message, errno_name(done.error().code));
        return -done.error().code;
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    } catch (const std::exception& error) {
        log_error("{}: {}", call, error.what());
        return -EIO;
    }
}

}  // namespace gshm::usrbio
