// The credentials of a client, as the kernel reports them. They are never taken from a message.
#pragma once

#include <algorithm>
#include <sys/types.h>
#include <vector>

namespace gshm::core {

struct Credentials {
    uid_t uid = 0;
    gid_t gid = 0;
    pid_t pid = 0;
    std::vector<gid_t> groups;

    bool is_root() const { return uid == 0; }
    bool in_group(gid_t group) const {
        return group == gid || std::find(groups.begin(), groups.end(), group) != groups.end();
    }
};

}  // namespace gshm::core
