#include "client/errors.h"

namespace gshm::core::client {
namespace {

thread_local std::string last_message;

}  // namespace

int set_last_error(const Error& error) {
    last_message = error.message;
    return error.code > 0 ? -error.code : -EIO;
}

const char* last_error() {
    return last_message.c_str();
}

}  // namespace gshm::core::client
