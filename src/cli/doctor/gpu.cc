// Features of the GPUs and their driver.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "cli/doctor/finding.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr const char* kNoGpu = "there is no GPU that could have it";
constexpr const char* kImexFolder = "/dev/nvidia-caps-imex-channels";
constexpr const char* kImexDriver = "nvidia-caps-imex-channels";

// "580.95.05" in the line "NVRM version: NVIDIA UNIX ... Kernel Module  580.95.05  ..."
std::string driver_version(const Machine& machine) {
    const auto text = machine.read("/proc/driver/nvidia/version");
    if (!text) return {};
    for (const auto& word : words_of(*text))
        if (word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos) return word;
    return "of unknown version";
}

std::string row_of(const std::string& text, std::string_view key) {
    for (const auto& line : lines_of(text)) {
        if (!line.starts_with(key)) continue;
        const auto begin = line.find_first_not_of(": \t", key.size());
        return begin == line.npos ? "" : line.substr(begin);
    }
    return {};
}

// Names of the GPUs that support a kind of handle, and of those that do not.
std::pair<std::vector<std::string>, std::vector<std::string>> split_by(const LocalGpus& local, uint32_t kind) {
    std::pair<std::vector<std::string>, std::vector<std::string>> names;
    for (const auto& gpu : local.gpus) (gpu.handle_kinds & kind ? names.first : names.second).emplace_back(gpu.name);
    return names;
}

}  // namespace

LocalGpus find_local_gpus() {
    LocalGpus local;
    for (const auto& device : local_devices().value_or(std::vector<DeviceInfo>()))
        if (std::string_view(device.name) != "host") local.gpus.push_back(device);
    // The library explains a missing GPU only in the error of an allocation. Without a GPU, the allocation fails at
    // that point.
    if (local.gpus.empty())
        if (const auto object = Object::allocate("cuda", 1); !object) local.failure = object.error().message;
    return local;
}

std::vector<PciGpu> list_pci_gpus(const Machine& machine) {
    std::vector<PciGpu> gpus;
    for (const auto& address : machine.list("/sys/bus/pci/devices")) {
        const auto folder = "/sys/bus/pci/devices/" + address;
        const auto kind = machine.read(folder + "/class").value_or("");
        const bool display = kind.starts_with("0x0300") || kind.starts_with("0x0302");
        if (!display || machine.read(folder + "/vendor") != "0x10de") continue;
        const auto text = machine.read("/proc/driver/nvidia/gpus/" + address + "/information").value_or("");
        gpus.push_back({address, row_of(text, "GPU UUID"), row_of(text, "Model")});
    }
    return gpus;
}

void check_driver(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    const auto version = driver_version(machine);
    const auto present = list_pci_gpus(machine).size();
    Finding finding{.check = "driver"};
    if (!local.gpus.empty()) {
        finding.found =
            version.empty() ? "NVIDIA driver, libcuda.so.1 works" : fmt::format("NVIDIA driver {}", version);
        finding.found += fmt::format(", {} {} usable", local.gpus.size(), local.gpus.size() == 1 ? "GPU" : "GPUs");
    } else if (version.empty() && present == 0) {
        finding.health = Health::missing;
        finding.found = "no NVIDIA GPU and no driver: gshm has only host memory";
    } else if (version.empty()) {
        finding.health = Health::missing;
        finding.needed = true;
        finding.found = fmt::format("{} NVIDIA GPU(s) on the bus, but no driver is loaded for them", present);
        finding.remedy = "install NVIDIA's driver and load it with `modprobe nvidia nvidia_uvm`";
    } else {
        finding.health = Health::missing;
        finding.needed = true;
        finding.found = fmt::format("NVIDIA driver {} is loaded, but CUDA does not start: {}", version, local.failure);
        finding.remedy =
            "install the libcuda.so.1 of the same version (in a container: start it with the NVIDIA runtime), "
            "and see that /dev/nvidiactl and /dev/nvidia-uvm are there";
    }
    ret_findings.push_back(std::move(finding));
}

void check_gpus(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    for (const auto& gpu : local.gpus) {
        Finding finding{.check = "gpu"};
        const bool shared = (gpu.handle_kinds & GSHM_HANDLE_POSIX_FD) != 0;
        finding.found = fmt::format("{}: {}, {}, {}", gpu.name, gpu.model, size_text(gpu.capacity_bytes),
                                    shared ? "memory can be shared (VMM)" : "memory cannot be shared (no VMM)");
        if (!shared) {
            finding.health = Health::missing;
            finding.needed = true;
            finding.remedy = "it needs CUDA 11.4 or newer, and a GPU that is not in a mode without VMM";
        }
        ret_findings.push_back(std::move(finding));
    }
    if (local.gpus.empty()) return;
    const bool has_mig =
        std::ranges::any_of(local.gpus, [](const auto& gpu) { return std::string_view(gpu.uuid).starts_with("MIG-"); });
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    for (const auto& gpu : list_pci_gpus(machine)) {
        const auto known = [&](const auto& device) { return gpu.uuid == device.uuid; };
        if (gpu.uuid.empty() || std::ranges::any_of(local.gpus, known)) continue;
        Finding finding{.check = "gpu", .health = Health::warning};
        finding.found = fmt::format("{} at {} ({}) is not usable from here", gpu.model, gpu.address, gpu.uuid);
        if (visible)
            finding.remedy =
                fmt::format("CUDA_VISIBLE_DEVICES is {}: unset it if that is not intended", printable(visible));
        else if (has_mig) finding.remedy = "this is expected if it is divided by MIG";
        else
            finding.remedy =
                "it may lack VMM (CUDA 11.4 or newer), or have failed: see `nvidia-smi` and the kernel's log";
        ret_findings.push_back(std::move(finding));
    }
}

void check_fabric(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    Finding finding{.check = "fabric"};
    const auto [with, without] = split_by(local, GSHM_HANDLE_FABRIC);
    const auto channel = fmt::format("{}/channel0", kImexFolder);
    const auto major = machine.device_major(kImexDriver);
    if (local.gpus.empty()) {
        finding.health = Health::missing;
        finding.found = kNoGpu;
    } else if (without.empty()) {
        finding.found = fmt::format("fabric handles on {}", fmt::join(with, ", "));
    } else {
        finding.health = Health::missing;
        finding.found = fmt::format("no fabric handles on {}", fmt::join(without, ", "));
        if (machine.exists(channel))
            finding.remedy =
                "the IMEX channel is there: see that this user may open it, and start gshmd again; some GPUs "
                "have no fabric";
        else if (major)
            finding.remedy =
                fmt::format("make the IMEX channel: `mkdir -p {0} && mknod {1} c {2} 0 && chmod 0666 {1}` as "
                            "root, and start gshmd again",
                            kImexFolder, channel, *major);
        else
            finding.remedy =
                "the driver has no IMEX channels (no nvidia-caps-imex-channels in /proc/devices): it takes "
                "driver 550 or newer and a GPU with NVLink";
    }
    ret_findings.push_back(std::move(finding));
}

void check_dmabuf(const LocalGpus& local, Findings& ret_findings) {
    Finding finding{.check = "dma-buf"};
    const auto [with, without] = split_by(local, GSHM_HANDLE_DMABUF);
    if (local.gpus.empty()) {
        finding.health = Health::missing;
        finding.found = kNoGpu;
    } else if (without.empty()) {
        finding.found = fmt::format("memory of {} goes to other drivers as dma-buf", fmt::join(with, ", "));
    } else {
        finding.health = Health::missing;
        finding.found = fmt::format("no dma-buf of memory on {}", fmt::join(without, ", "));
        finding.remedy = "use the open kernel modules of driver 515 or newer, on Linux 5.12 or newer";
    }
    ret_findings.push_back(std::move(finding));
}

void check_gpudirect_rdma(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    Finding finding{.check = "gpudirect-rdma"};
    const auto [with, without] = split_by(local, GSHM_HANDLE_DMABUF);
    if (local.gpus.empty()) {
        finding.health = Health::missing;
        finding.found = kNoGpu;
    } else if (machine.module_loaded("nvidia_peermem")) {
        finding.found = "nvidia_peermem is loaded";
    } else if (without.empty() && machine.kernel_at_least(5, 12)) {
        finding.found = "by dma-buf; nvidia_peermem is not loaded and not needed";
    } else {
        finding.health = Health::missing;
        finding.found = "neither nvidia_peermem nor dma-buf: the network reaches GPU memory through the host's";
        finding.remedy = "`modprobe nvidia_peermem` as root, or the open kernel modules on Linux 5.12 or newer";
    }
    ret_findings.push_back(std::move(finding));
}

}  // namespace gshm::cli
