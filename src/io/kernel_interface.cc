#include "io/kernel_interface.h"

#include <algorithm>
#include <cstdint>
#include <linux/magic.h>
#include <sys/vfs.h>

namespace gshm::core::io {
namespace {

// Not in linux/magic.h.
constexpr uint32_t kConfigFs = 0x62656570;
constexpr uint32_t kFuseControl = 0x65735543;
constexpr uint32_t kMessageQueues = 0x19800202;
constexpr uint32_t kNfsServer = 0x6e667364;
constexpr uint32_t kProcessFs = 0x50494446;  // pidfd
constexpr uint32_t kRpcPipes = 0x67596969;

constexpr uint32_t kInterfaces[] = {
    AAFS_MAGIC,          ANON_INODE_FS_MAGIC, BINDERFS_SUPER_MAGIC, BINFMTFS_MAGIC,     BPF_FS_MAGIC,
    CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,       CGROUP_SUPER_MAGIC,   DEVPTS_SUPER_MAGIC, EFIVARFS_MAGIC,
    NSFS_MAGIC,          PROC_SUPER_MAGIC,    PSTOREFS_MAGIC,       SECRETMEM_MAGIC,    RDTGROUP_SUPER_MAGIC,
    SECURITYFS_MAGIC,    SELINUX_MAGIC,       SMACK_MAGIC,          SYSFS_MAGIC,        TRACEFS_MAGIC,
    XENFS_SUPER_MAGIC,   kConfigFs,           kFuseControl,         kMessageQueues,     kNfsServer,
    kProcessFs,          kRpcPipes,
};

}  // namespace

bool is_kernel_interface(int fd) {
    struct statfs system = {};
    // The file systems above always answer.
    if (fstatfs(fd, &system) != 0) return false;
    return std::ranges::find(kInterfaces, static_cast<uint32_t>(system.f_type)) != std::end(kInterfaces);
}

}  // namespace gshm::core::io
