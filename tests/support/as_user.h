// Another user, for connections of this process: gshmd knows a client by the credentials of its connect(2).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace gshm::core::test {

// The calling thread has this effective uid meanwhile. Needs root.
class AsUser {
public:
    explicit AsUser(uid_t uid) { ::syscall(SYS_setresuid, -1, uid, -1); }
    ~AsUser() { ::syscall(SYS_setresuid, -1, 0, -1); }
    AsUser(const AsUser&) = delete;
    AsUser& operator=(const AsUser&) = delete;
};

}  // namespace gshm::core::test
