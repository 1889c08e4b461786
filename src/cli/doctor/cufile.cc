// Whether cuFile (GPUDirect Storage) is installed. The library is only located and never loaded, since its constructors
// start threads.
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "cli/doctor/finding.h"

namespace gshm::cli {
namespace {

constexpr std::string_view kLibrary = "libcufile.so.0";

// The path that the dynamic linker would use, from LD_LIBRARY_PATH and its cache.
std::string find_for_linker(const Machine& machine) {
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
        std::istringstream folders(path);
        for (std::string folder; std::getline(folders, folder, ':');) {
            const auto file = fmt::format("{}/{}", folder, kLibrary);
            if (!folder.empty() && machine.exists(file)) return file;
        }
    }
    // The cache ends in a table of NUL-terminated strings. The full path of the library is one of them.
    const auto cache = machine.read("/etc/ld.so.cache").value_or("");
    const auto wanted = fmt::format("/{}", kLibrary) + '\0';
    if (const auto found = cache.find(wanted); found != cache.npos) {
        const auto before = cache.rfind('\0', found);
        const auto begin = before == cache.npos ? 0 : before + 1;
        const auto file = cache.substr(begin, found + wanted.size() - 1 - begin);
        if (machine.exists(file)) return file;
    }
    for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
                               "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
        const auto file = fmt::format("{}/{}", folder, kLibrary);
        if (machine.exists(file)) return file;
    }
    return {};
}

// The folder of the CUDA toolkit, which may be missing from the linker's search path.
std::string find_in_toolkit(const Machine& machine) {
    for (const auto& name : machine.list("/usr/local")) {
        if (!name.starts_with("cuda")) continue;
        for (const char* below : {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
            const auto folder = fmt::format("/usr/local/{}/{}", name, below);
            if (machine.exists(fmt::format("{}/{}", folder, kLibrary))) return folder;
        }
    }
    return {};
}

}  // namespace

void check_cufile(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    Finding finding{.check = "cufile"};
    const auto file = find_for_linker(machine);
    const bool kernel_side = machine.module_loaded("nvidia_fs") || machine.exists("/proc/driver/nvidia-fs");
    if (!file.empty() && kernel_side) {
        finding.found = fmt::format("{}, and nvidia-fs is loaded", file);
    } else if (!file.empty()) {
        finding.health = Health::warning;
        finding.found = fmt::format("{}, without nvidia-fs: cuFile then goes through the host's memory itself", file);
        finding.remedy =
            "`modprobe nvidia-fs` as root (of the package nvidia-fs) if disk and GPU are to be connected directly";
    } else {
        finding.health = Health::missing;
        const auto folder = find_in_toolkit(machine);
        finding.found = folder.empty() ? fmt::format("no {}: files go through pinned memory", kLibrary)
                                       : fmt::format("{} is in {}, where the linker does not look", kLibrary, folder);
        if (!folder.empty())
            finding.remedy = fmt::format("`echo {} > /etc/ld.so.conf.d/cuda.conf && ldconfig` as root", folder);
        else if (!local.gpus.empty())
            finding.remedy = "install CUDA's libcufile if the disks support GPUDirect Storage";
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace gshm::cli
