#include "memory/devices.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace gshm::core {

Error explain_descriptor_limit(Error error) {
    // Drivers report this limit with their own errors, so the kernel is asked.
    if (error.code != EMFILE && error.code != ENFILE) {
        int probe = fcntl(0, F_DUPFD_CLOEXEC, 0);
        if (probe >= 0) close(probe);
        if (probe >= 0 || (errno != EMFILE && errno != ENFILE)) return error;
    }
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    return Error{EMFILE, fmt::format("gshmd has reached its limit of {} open descriptors (raise it with `ulimit -n` or "
                                     "LimitNOFILE= before gshmd starts)",
                                     limit.rlim_cur)};
}

}  // namespace gshm::core
