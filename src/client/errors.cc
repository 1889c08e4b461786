#include "client/errors.h"

#include <new>

namespace gshm::core::client {
namespace {

thread_local std::string last_message;

}  // namespace

int set_last_error(const Error& error) {
    last_message = error.message;
    return error.code > 0 ? -error.code : -EIO;
}

int set_last_error(int code, const char* message) noexcept {
    try {
        last_message = message;
    } catch (const std::bad_alloc&) {
        last_message.clear();
        last_message.append("out of memory");  // fits without an allocation
    }
    return -code;
}

const char* last_error() {
    return last_message.c_str();
}

}  // namespace gshm::core::client
