// Keepers without a gshmd. Their memory is taken over by a gshmd that is started in the same folder.
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <fmt/format.h>

#include "cli/doctor/finding.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

struct KeeperProcess {
    std::string pid;
    std::string folder;
    uint64_t descriptors = 0;
    uint64_t bytes = 0;  // host memory only; the descriptor of GPU memory has no size
    bool connected = false;
};

// A row of /proc/PID/net/unix, by inode.
struct SocketRow {
    bool listens = false;
    std::string path;
};
std::map<std::string, SocketRow> sockets_of(const Machine& machine, const std::string& pid) {
    std::map<std::string, SocketRow> rows;
    for (const auto& line : lines_of(machine.read("/proc/" + pid + "/net/unix").value_or(""))) {
        const auto words = words_of(line);
        if (words.size() < 7) continue;
        rows[words[6]] = {words[3] == "00010000", words.size() > 7 ? words[7] : ""};
    }
    return rows;
}

KeeperProcess examine(const Machine& machine, const std::string& pid) {
    KeeperProcess keeper{.pid = pid};
    const auto sockets = sockets_of(machine, pid);
    for (const auto& fd : machine.list("/proc/" + pid + "/fd")) {
        const std::string path = machine.at("/proc/" + pid + "/fd/" + fd);
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(path, error);
        if (target.starts_with("socket:[")) {
            auto row = sockets.find(target.substr(8, target.size() - 9));
            if (row == sockets.end()) continue;
            // A connection from gshmd has the path of the listener. A socket without a path leads to gshm-maker, and is
            // kept like the memory.
            if (!row->second.listens) keeper.connected |= !row->second.path.empty();
            else keeper.folder = std::filesystem::path(row->second.path).parent_path();
            continue;
        }
        const bool is_own = target == "/dev/null" || target.starts_with("anon_inode:") || target == keeper.folder;
        if (is_own) continue;
        struct stat status = {};
        if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
            keeper.bytes += static_cast<uint64_t>(status.st_blocks) * 512;
        }
        // The private tmpfs of host files has no path.
        struct statfs files = {};
        if (S_ISDIR(status.st_mode) && target == "/" && ::statfs(path.c_str(), &files) == 0) {
            keeper.bytes += (files.f_blocks - files.f_bfree) * static_cast<uint64_t>(files.f_bsize);
        }
        if (!S_ISDIR(status.st_mode)) ++keeper.descriptors;
    }
    return keeper;
}

}  // namespace

void check_keepers(const Machine& machine, Findings& ret_findings) {
    size_t alone = 0;
    for (const auto& pid : machine.list("/proc")) {
        if (pid.find_first_not_of("0123456789") != pid.npos) continue;
        if (machine.read("/proc/" + pid + "/comm") != "gshm-keeper") continue;
        const auto keeper = examine(machine, pid);
        if (keeper.connected || keeper.folder.empty()) continue;  // in use, or owned by another user
        ++alone;
        Finding finding{.check = "keepers", .health = Health::warning};
        finding.found =
            fmt::format("gshm-keeper {} holds {} descriptors ({} of host memory) of {} and no gshmd runs there", pid,
                        keeper.descriptors, size_text(keeper.bytes), printable(keeper.folder));
        finding.remedy =
            fmt::format("take it over with `gshmd --dir {}`, or free it with `kill {}`", printable(keeper.folder), pid);
        Record details;
        details.add("pid", static_cast<uint64_t>(std::stoull(pid)))
            .add("folder", keeper.folder)
            .add("descriptors", keeper.descriptors)
            .add("host_bytes", keeper.bytes);
        finding.details = std::move(details);
        ret_findings.push_back(std::move(finding));
    }
    if (alone == 0) ret_findings.push_back({.check = "keepers", .found = "no keeper is without its gshmd"});
}

}  // namespace gshm::cli
