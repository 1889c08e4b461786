// Limits on memory and descriptors.
#include <sys/statvfs.h>

#include <fmt/format.h>

#include "cli/doctor/finding.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr uint64_t kStagingBytes = uint64_t{64} << 20;
constexpr uint64_t kSharedMemoryBytes = uint64_t{1} << 30;
// The first is the minimum: the daemon's own files, its keeper and a few clients. Every large object on a GPU needs one more.
constexpr uint64_t kFewestDescriptors = 256;
constexpr uint64_t kEnoughDescriptors = 16384;
constexpr int kCapIpcLock = 14;
constexpr int kCapSysResource = 24;

std::string whose(const std::string& process) {
    return process == "self" ? "" : fmt::format(" (gshmd, pid {})", process);
}

void check_huge_pages(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "shmem-huge-pages"};
    const auto text = machine.read("/sys/kernel/mm/transparent_hugepage/shmem_enabled").value_or("");
    const auto begin = text.find('['), end = text.find(']');
    const auto chosen = begin == text.npos || end == text.npos ? "" : text.substr(begin + 1, end - begin - 1);
    if (chosen == "deny") {
        finding.health = Health::warning;
        finding.found = "denied: host memory is in small pages, and slower";
        finding.remedy =
            "`echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled` as root (gshmd asks for them where it "
            "mounts a tmpfs of its own)";
    } else if (chosen.empty()) {
        finding.health = Health::missing;
        finding.found = "this kernel has none for shared memory: host memory is in small pages";
        finding.remedy = "a kernel with CONFIG_TRANSPARENT_HUGEPAGE has them";
    } else {
        finding.found = fmt::format("{}: gshmd as root asks for them in a tmpfs of its own", chosen);
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace

void check_memlock(const Machine& machine, const std::string& process, Findings& ret_findings) {
    Finding finding{.check = "memlock"};
    const auto limit = machine.limit(process, "Max locked memory");
    const auto text = [](uint64_t bytes) { return bytes == UINT64_MAX ? "unlimited" : size_text(bytes); };
    if (!limit) {
        finding.health = Health::warning;
        finding.found = "the limit of locked memory is not known";
    } else if (machine.has_capability(process, kCapIpcLock)) {
        finding.found = fmt::format("{}, which does not apply to root{}", text(limit->soft), whose(process));
    } else if (limit->soft < kStagingBytes) {
        finding.health = Health::warning;
        finding.found = fmt::format("{} may be locked{}, staging wants {}: copies between files and GPUs are slower",
                                    text(limit->soft), whose(process), size_text(kStagingBytes));
        finding.remedy =
            "raise it before gshmd starts: `ulimit -l unlimited`, LimitMEMLOCK=infinity of the service, or "
            "memlock in /etc/security/limits.conf";
    } else {
        finding.found = fmt::format("{} may be locked{}, staging wants {}", text(limit->soft), whose(process),
                                    size_text(kStagingBytes));
    }
    ret_findings.push_back(std::move(finding));
}

void check_shared_memory(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "dev-shm"};
    struct statvfs info{};
    if (::statvfs(machine.at("/dev/shm").c_str(), &info) != 0) {
        finding.health = Health::warning;
        finding.found = "no /dev/shm: frameworks that share tensors between processes want it";
        finding.remedy = "`mount -t tmpfs tmpfs /dev/shm` as root";
    } else {
        const uint64_t size = info.f_blocks * info.f_frsize;
        const uint64_t free = info.f_bavail * info.f_frsize;
        finding.found = fmt::format("{}, {} free", size_text(size), size_text(free));
        if (size < kSharedMemoryBytes) {
            finding.health = Health::warning;
            finding.remedy = "`mount -o remount,size=8G /dev/shm` as root; for a container `--shm-size=8g`";
        }
    }
    ret_findings.push_back(std::move(finding));
    check_huge_pages(machine, ret_findings);
}

void check_descriptors(const Machine& machine, const std::string& process, Findings& ret_findings) {
    Finding finding{.check = "descriptors"};
    const auto limit = machine.limit(process, "Max open files");
    // The daemon raises its own limit: to the hard limit, or as root to the kernel's limit.
    const bool may_raise = machine.has_capability(process, kCapSysResource);
    const auto most = static_cast<uint64_t>(machine.read_number("/proc/sys/fs/nr_open").value_or(0));
    const uint64_t usable = !limit ? 0 : may_raise ? std::max(limit->hard, most) : limit->hard;
    const auto found = usable == UINT64_MAX ? "no limit" : fmt::format("{}", usable);
    if (!limit) {
        finding.health = Health::warning;
        finding.found = "the limit of open descriptors is not known";
    } else {
        finding.found =
            fmt::format("{} may be open{}; every large object and every client takes one", found, whose(process));
    }
    if (limit && usable < kEnoughDescriptors) {
        finding.needed = usable < kFewestDescriptors;
        finding.health = finding.needed ? Health::missing : Health::warning;
        finding.remedy =
            "raise it before gshmd starts: `ulimit -Hn 1048576`, LimitNOFILE=1048576 of the service, or nofile in "
            "/etc/security/limits.conf";
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace gshm::cli
