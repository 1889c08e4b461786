// Kernel features: io_uring, FUSE, RDMA.
#include <cerrno>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/doctor/finding.h"
#include "cli/support/streams.h"

namespace gshm::cli {
namespace {

// The call is tried, since the seccomp filter of a container is not visible elsewhere. Its number is the same on all
// architectures.
int try_io_uring() {
    constexpr long kIoUringSetup = 425;
    struct Parameters {
        uint32_t words[30];
    } parameters{};
    static_assert(sizeof(Parameters) == 120);  // struct io_uring_params
    const auto ring = UniqueFd::adopt(static_cast<int>(::syscall(kIoUringSetup, 1, &parameters)));
    return ring.get() < 0 ? errno : 0;
}

void check_fuse_device(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "fuse"};
    const auto device = machine.at("/dev/fuse");
    const bool root = ::geteuid() == 0;
    const bool helper = machine.exists("/usr/bin/fusermount3") || machine.exists("/bin/fusermount3");
    if (::access(device.c_str(), F_OK) != 0) {
        finding.health = Health::missing;
        finding.found = "no /dev/fuse: gshmd cannot mount its objects as files; all else works";
        finding.remedy = "`modprobe fuse` as root; for a container `--device /dev/fuse --cap-add SYS_ADMIN`";
    } else if (::access(device.c_str(), R_OK | W_OK) != 0) {
        finding.health = Health::missing;
        finding.found = "/dev/fuse may not be opened by this user";
        finding.remedy = "`chmod 0666 /dev/fuse` as root, or start gshmd as root";
    } else if (!root && !helper) {
        finding.health = Health::missing;
        finding.found = "/dev/fuse is there, but no fusermount3, which mounts for users other than root";
        finding.remedy = "install the package fuse3, or start gshmd as root";
    } else {
        finding.found = "/dev/fuse can be used";
    }
    ret_findings.push_back(std::move(finding));
}

void check_fuse_passthrough(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "fuse-passthrough"};
    const bool new_enough = machine.kernel_at_least(6, 9);
    if (new_enough && ::geteuid() == 0) {
        finding.found = fmt::format("Linux {}: host files are read and written by the kernel itself", machine.kernel());
    } else {
        finding.health = Health::missing;
        finding.found =
            new_enough ? "the kernel allows it only for root: host files of the mount go through gshmd"
                       : fmt::format("not in Linux {}: host files of the mount go through gshmd", machine.kernel());
        finding.remedy = new_enough ? "start gshmd as root if the mount is to be as fast as tmpfs"
                                    : "Linux 6.9 or newer has it, with CONFIG_FUSE_PASSTHROUGH";
    }
    ret_findings.push_back(std::move(finding));
}

void check_fuse_uring(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "fuse-io-uring"};
    const auto parameter = machine.read("/sys/module/fuse/parameters/enable_uring");
    if (parameter == "Y") {
        finding.found = "on: `gshmd --io-uring` works";
    } else {
        finding.health = Health::missing;
        finding.found = parameter ? "off, which is the default; only `gshmd --io-uring` uses it"
                                  : "this kernel does not support it; only `gshmd --io-uring` uses it";
        finding.remedy = parameter ? "`echo Y > /sys/module/fuse/parameters/enable_uring` as root, before it mounts"
                                   : "Linux 6.14 or newer has it";
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace

void check_io_uring(const Machine& machine, Findings& ret_findings) {
    Finding finding{.check = "io_uring", .health = Health::warning};
    const auto disabled = machine.read_number("/proc/sys/kernel/io_uring_disabled").value_or(0);
    const int refused = try_io_uring();
    if (disabled == 2 || (disabled == 1 && refused != 0)) {
        finding.found = disabled == 2
                            ? "switched off by kernel.io_uring_disabled: files are read by threads instead"
                            : "not for this user (kernel.io_uring_disabled is 1): files are read by threads instead";
        finding.remedy = "`sysctl kernel.io_uring_disabled=0` as root";
    } else if (refused == ENOSYS) {
        finding.found = "not in this kernel, or blocked by a container's filter: files are read by threads instead";
        finding.remedy = "Linux 5.6 or newer has it; for a container allow io_uring_setup, io_uring_enter and "
                         "io_uring_register in its seccomp profile";
    } else if (refused == ENOMEM) {
        finding.found = "the limit of locked memory is too low for it: files are read by threads instead";
        finding.remedy = "raise `ulimit -l` (LimitMEMLOCK= of the service)";
    } else if (refused != 0) {
        finding.found = fmt::format("it is refused ({}): files are read by threads instead", std::strerror(refused));
        finding.remedy =
            "for a container allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile";
    } else {
        finding.health = Health::ok;
        finding.found = "it works";
    }
    ret_findings.push_back(std::move(finding));
}

void check_fuse(const Machine& machine, Findings& ret_findings) {
    check_fuse_device(machine, ret_findings);
    check_fuse_passthrough(machine, ret_findings);
    check_fuse_uring(machine, ret_findings);
}

void check_rdma_devices(const Machine& machine, Findings& ret_findings) {
    constexpr const char* kFolder = "/sys/class/infiniband";
    const auto devices = machine.list(kFolder);
    if (devices.empty()) {
        ret_findings.push_back({.check = "rdma",
                                .health = Health::missing,
                                .found = "no RDMA device: network cards do not reach GPU memory"});
        return;
    }
    for (const auto& device : devices) {
        for (const auto& port : machine.list(fmt::format("{}/{}/ports", kFolder, device))) {
            const auto folder = fmt::format("{}/{}/ports/{}", kFolder, device, port);
            // "4: ACTIVE"
            const auto state = words_of(machine.read(folder + "/state").value_or(""));
            const bool active = !state.empty() && state.back() == "ACTIVE";
            Finding finding{.check = "rdma"};
            finding.found =
                fmt::format("{} port {}: {}, {}, {}", device, port, state.empty() ? "state unknown" : state.back(),
                            machine.read(folder + "/link_layer").value_or("link layer unknown"),
                            machine.read(folder + "/rate").value_or("rate unknown"));
            if (!active) {
                finding.health = Health::warning;
                finding.remedy =
                    "see that the cable is in and the port is up (`ip link`, `ibstat`), and on InfiniBand that "
                    "a subnet manager runs";
            }
            ret_findings.push_back(std::move(finding));
        }
    }
}

}  // namespace gshm::cli
