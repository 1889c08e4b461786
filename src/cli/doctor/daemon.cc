// The daemon and the conditions for its start.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/doctor/finding.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/mounts.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// The folder itself, or its nearest ancestor that exists.
std::string nearest_folder(std::string folder) {
    while (!folder.empty() && ::access(folder.c_str(), F_OK) != 0) {
        const auto slash = folder.find_last_of('/');
        folder = slash == folder.npos ? "." : folder.substr(0, slash);
    }
    return folder.empty() ? "/" : folder;
}

void check_runtime_folder(const std::string& folder, Findings& ret_findings) {
    Finding finding{.check = "runtime-folder"};
    const auto parent = nearest_folder(folder);
    if (folder.starts_with('$')) {
        finding.health = Health::missing;
        finding.needed = true;
        finding.found = "there is no runtime folder for this user: XDG_RUNTIME_DIR is not set";
        finding.remedy = "set GSHM_DIR to a folder of your own on a tmpfs, or name one with --dir";
    } else if (::access(parent.c_str(), W_OK | X_OK) != 0) {
        finding.health = Health::missing;
        finding.needed = true;
        finding.found =
            fmt::format("gshmd cannot make {}: {} may not be written to", printable(folder), printable(parent));
        finding.remedy = "set GSHM_DIR to a folder of your own on a tmpfs, name one with --dir, or start gshmd as root";
    } else {
        finding.found = fmt::format("{} {}", printable(folder), parent == folder ? "can be used" : "can be made");
    }
    ret_findings.push_back(std::move(finding));
}

void report_absence(Context& context, const DaemonState& daemon, Findings& ret_findings) {
    Finding finding{.check = "daemon", .health = Health::warning};
    const auto folder = printable(context.dir());
    const bool absent = daemon.status == -ENOENT || daemon.status == -ECONNREFUSED || daemon.status == -ENOTDIR;
    if (absent) {
        finding.found = fmt::format("no gshmd runs at {}", folder);
        finding.remedy = start_hint(context.dir(), " --dir " + folder);
    } else {
        finding.health = Health::missing;
        finding.needed = true;
        finding.found = fmt::format("gshmd at {} does not answer this program: {}", folder, daemon.failure);
        if (daemon.status == -EPROTO)
            finding.remedy = "use the gshm of the same version, or `gshmd --takeover` of this one";
        else if (daemon.status == -EACCES) finding.remedy = "run gshm as the user that gshmd serves";
        else finding.remedy = "see its log; `gshmd --takeover` replaces it and keeps its objects";
    }
    ret_findings.push_back(std::move(finding));
}

uint64_t memory_bytes(const Machine& machine) {
    for (const auto& line : lines_of(machine.read("/proc/meminfo").value_or(""))) {
        const auto words = words_of(line);
        if (words.size() >= 2 && words[0] == "MemTotal:") return std::strtoull(words[1].c_str(), nullptr, 10) * 1024;
    }
    return 0;
}

void check_devices(const DaemonState& daemon, const Machine& machine, Findings& ret_findings) {
    const uint64_t memory = memory_bytes(machine);
    for (const auto& device : daemon.devices) {
        Finding finding{.check = "daemon-device"};
        finding.found = fmt::format("{}: {} of {} in use", device.name, size_text(device.used_bytes),
                                    size_text(device.capacity_bytes));
        if (device.failed) {
            finding.health = Health::missing;
            finding.needed = true;
            finding.found = fmt::format("{} has {}", device.name, device_state_text(device));
            finding.remedy = "see the kernel's log (Xid); reset the GPU with `nvidia-smi -r`, then start gshmd again";
        }
        if (finding.health == Health::ok && std::string_view(device.name) == "host" && memory != 0 &&
            device.capacity_bytes > memory) {
            finding.health = Health::warning;
            finding.found += fmt::format("; this machine has {} of memory", size_text(memory));
            finding.remedy = "start gshmd with a smaller limit, such as `--device host:" +
                             fmt::format("{}M`, before the kernel ends processes for want of memory", memory / 2 >> 20);
        }
        ret_findings.push_back(std::move(finding));
    }
}

void check_keeper(const Machine& machine, const DaemonInfo& info, Findings& ret_findings) {
    Finding finding{.check = "keeper"};
    if (info.keeper != 0) {
        finding.found = fmt::format("gshm-keeper (pid {}) keeps the memory if gshmd dies", info.keeper);
    } else {
        // systemd sets FDSTORE in the environment of a service that has a descriptor store.
        const auto environment = machine.read(fmt::format("/proc/{}/environ", info.pid)).value_or("");
        const bool store = environment.find("FDSTORE=") != environment.npos;
        finding.health = store ? Health::ok : Health::warning;
        finding.found =
            store ? "systemd keeps the memory if gshmd dies" : "no process may keep the memory if gshmd dies";
        if (!store)
            finding.remedy =
                "if that is not intended, start gshmd without `--keeper none`; systemd may be the keeper, which "
                "does not show here";
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace

DaemonState ask_daemon(Context& context) {
    DaemonState daemon;
    try {
        const auto info = check(context.client().daemon(), {});
        daemon.devices = context.devices();
        daemon.info = info;
    } catch (const Failure& failure) {
        daemon.status = -failure.code();
        daemon.failure = failure.what();
    }
    return daemon;
}

void check_daemon(const Machine& machine, Context& context, const DaemonState& daemon, Findings& ret_findings) {
    if (!daemon.info) {
        check_runtime_folder(context.dir(), ret_findings);
        report_absence(context, daemon, ret_findings);
        return;
    }
    const auto& info = *daemon.info;
    Finding finding{.check = "daemon"};
    finding.found = fmt::format("gshmd {} (pid {}) at {}: {} objects", info.version, info.pid, printable(context.dir()),
                                info.objects);
    if (std::string_view(info.version) != gshm_version()) {
        finding.health = Health::warning;
        finding.found += fmt::format("; this program's library is {}", gshm_version());
        finding.remedy = "`gshmd --takeover` of the newer version replaces it and keeps its objects";
    }
    ret_findings.push_back(std::move(finding));
    check_devices(daemon, machine, ret_findings);
    check_keeper(machine, info, ret_findings);
    const auto mounts = context.mounts();
    ret_findings.push_back(
        {.check = "mount",
         .health = mounts.empty() ? Health::missing : Health::ok,
         .found = mounts.empty() ? "its objects are not mounted as files"
                                 : fmt::format("mounted at {}", mounts_text(mounts)),
         .remedy = mounts.empty() ? "where they are needed as files, `gshm mount DIR` mounts them" : ""});
}

}  // namespace gshm::cli
