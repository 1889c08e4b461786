#include "devices.h"

#include <cstdlib>

namespace gshm::usrbio {

int gpu_number(std::string_view name) {
    constexpr std::string_view kPrefix = "cuda:";
    if (!name.starts_with(kPrefix)) return -1;
    return atoi(std::string(name.substr(kPrefix.size())).c_str());
}

namespace {

Result<std::vector<DeviceInfo>> local_gpus() {
    auto devices = TRY(local_devices());
    std::erase_if(devices, [](const DeviceInfo& device) { return gpu_number(device.name) < 0; });
    return devices;
}

Result<DeviceInfo> local_gpu(int gpu) {
    TRY(check_argument(gpu >= 0, "the GPU's number is negative"));
    auto gpus = TRY(local_gpus());
    if (gpus.empty())
        return Error{ENOTSUP, "this process sees no GPU (GSHM_USRBIO_DEVICE=host uses host memory instead)"};
    for (const DeviceInfo& one : gpus) {
        if (gpu_number(one.name) == gpu) return one;
    }
    return Error{ENODEV, fmt::format("this process sees {} GPUs, but no GPU {}", gpus.size(), gpu)};
}

}  // namespace

bool gpus_are_host() {
    const char* device = getenv("GSHM_USRBIO_DEVICE");
    return device != nullptr && std::string_view(device) == "host";
}

int gpu_count() {
    if (gpus_are_host()) return 1;
    auto gpus = local_gpus();
    return gpus ? static_cast<int>(gpus->size()) : 0;
}

Result<void> check_gpu(int gpu) {
    if (gpus_are_host()) return check_argument(gpu >= 0, "the GPU's number is negative");
    TRY(local_gpu(gpu));
    return {};
}

Result<std::string> name_at_daemon(const Daemon& daemon, int gpu) {
    if (gpus_are_host()) {
        TRY(check_gpu(gpu));
        return std::string("host");
    }
    const auto wanted = TRY(local_gpu(gpu));
    for (const DeviceInfo& device : TRY(daemon.client().devices())) {
        if (std::string_view(device.uuid) == wanted.uuid) return std::string(device.name);
    }
    return Error{ENODEV, fmt::format("gshmd does not have cuda:{} ({}); see `gshm devices`", gpu, wanted.uuid)};
}

Result<int> number_here(const Daemon& daemon, const std::string& name, int exported_as) {
    if (gpus_are_host()) return exported_as;
    for (const DeviceInfo& device : TRY(daemon.client().devices())) {
        if (name != device.name) continue;
        for (const DeviceInfo& gpu : TRY(local_gpus())) {
            if (std::string_view(gpu.uuid) == device.uuid) return gpu_number(gpu.name);
        }
    }
    return Error{ENODEV, fmt::format("gshmd's {} is not visible in this process: check CUDA_VISIBLE_DEVICES", name)};
}

Result<uint64_t> gpu_fingerprint(int gpu) {
    const auto found = TRY(local_gpu(gpu));
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char* at = found.uuid; *at != '\0'; ++at)
        hash = (hash ^ static_cast<unsigned char>(*at)) * 1099511628211u;
    hash = (hash ^ hash >> 32) & ((1u << kFingerprintBits) - 1);
    return hash != 0 ? hash : 1;
}

}  // namespace gshm::usrbio
