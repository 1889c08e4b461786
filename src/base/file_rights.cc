#include "base/file_rights.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

namespace gshm::core {
namespace {

// System calls of the thread: the functions of the C library change all threads of the process.
bool set_groups(const std::vector<gid_t>& groups) {
    return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// Has no error: the second call returns the current id and changes nothing.
bool set_file_ids(uid_t uid, gid_t gid) {
    setfsgid(gid);
    setfsuid(uid);
    return static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid &&
           static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid;
}

// The capabilities in effect: all permitted ones, or none. They stay permitted, so that they can be taken up again.
bool set_capabilities(bool in_effect) {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capget, &header, sets) != 0) return false;
    for (auto& set : sets) set.effective = in_effect ? set.permitted : 0;
    return syscall(SYS_capset, &header, sets) == 0;
}

Result<std::vector<gid_t>> own_groups() {
    const int count = getgroups(0, nullptr);
    std::vector<gid_t> groups(count > 0 ? static_cast<size_t>(count) : 0);
    if (count < 0 || getgroups(count, groups.data()) != count) return fail_errno("getgroups");
    return groups;
}

// The ids of the process are those of its user; it never changes them.
bool give_back(const std::vector<gid_t>& groups) {
    const bool capable = set_capabilities(true);
    const bool named = set_file_ids(geteuid(), getegid());
    return set_groups(groups) && capable && named;
}

}  // namespace

Result<BorrowedFileRights> BorrowedFileRights::create(const FileRights& rights) {
    auto own = TRY(own_groups());
    if (set_groups(rights.groups) && set_file_ids(rights.uid, rights.gid) && set_capabilities(false))
        return BorrowedFileRights(std::move(own));
    (void)give_back(own);
    return fail(EPERM,
                "gshmd cannot use files with the rights of uid {} (it lacks CAP_SETUID or CAP_SETGID, or the user is "
                "not in its user namespace)",
                rights.uid);
}

BorrowedFileRights::~BorrowedFileRights() {
    // Cannot fail: the capabilities are still permitted.
    if (active_ && !give_back(own_groups_)) log_error("a thread cannot take up its own rights to files again");
}

}  // namespace gshm::core
