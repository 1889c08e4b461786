#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>

namespace gshm::core {

Result<UniqueFd> UniqueFd::clone(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return fail_errno("cannot duplicate a descriptor");
    return adopt(copy);
}

void UniqueFd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

}  // namespace gshm::core
