// From Result to the C convention: a negative errno, and the message for gshm_last_error().
#pragma once

#include "base/result.h"

namespace gshm::core::client {

// Stores the error for this thread and returns -code.
int set_last_error(const Error& error);
// The same while an exception is handled: throws nothing.
int set_last_error(int code, const char* message) noexcept;
const char* last_error();

inline int to_code(const Status& status) {
    return status ? 0 : set_last_error(status.error());
}

}  // namespace gshm::core::client
