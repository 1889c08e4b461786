// The rights with which a thread uses files: its user, its groups, and no capabilities. Only the ids for files change
// (setfsuid(2)), so that the user can neither trace nor signal the thread.
#pragma once

#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace gshm::core {

struct FileRights {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;
    bool operator==(const FileRights&) const = default;
};

// Gives the rights to the calling thread, which must also destroy this. Threads that it starts meanwhile inherit them and
// keep them.
class BorrowedFileRights {
public:
    // EPERM: this process may not change ids.
    static Result<BorrowedFileRights> create(const FileRights& rights);
    BorrowedFileRights(BorrowedFileRights&& other) noexcept
        : own_groups_(std::move(other.own_groups_)), active_(std::exchange(other.active_, false)) {}
    BorrowedFileRights& operator=(BorrowedFileRights&&) = delete;
    ~BorrowedFileRights();

private:
    explicit BorrowedFileRights(std::vector<gid_t> own_groups) : own_groups_(std::move(own_groups)), active_(true) {}
    std::vector<gid_t> own_groups_;
    bool active_;
};

}  // namespace gshm::core
