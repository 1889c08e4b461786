#include "base/result.h"

#include <cstring>

namespace gshm::core {

std::unexpected<Error> fail_errno(const char* what, int code) {
    return fail(code, "{}: {}", what, strerror(code));
}

std::unexpected<Error> fail_errno(const char* what) {
    return fail_errno(what, errno);
}

}  // namespace gshm::core
