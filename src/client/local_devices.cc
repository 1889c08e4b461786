#include "client/local_devices.h"

namespace gshm::client {

LocalDevices& LocalDevices::instance() {
    // Never destroyed: extents may outlive main(), and the driver may be gone before static destructors run.
    static auto* devices = new LocalDevices;
    return *devices;
}

Result<Device*> LocalDevices::host() {
    if (!host_) host_ = TRY(HostDevice::create(0));
    return host_.get();
}

Status LocalDevices::find_gpus() {
    TRY(cuda::Driver::get());  // says so if this is a forked child
    if (searched_) return {};
    int count = TRY(CudaDevice::count());
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        // One that cannot even be asked what it is must not take the others along.
        if (auto gpu = CudaDevice::create(ordinal)) gpus_.push_back(std::move(*gpu));
    }
    searched_ = true;
    return {};
}

Result<Device*> LocalDevices::by_name(std::string_view name) {
    MutexLock lock(mutex_);
    if (name == "host") return host();
    if (name == "cuda") name = "cuda:0";
    if (!name.starts_with("cuda:")) {
        return fail(ENODEV, "there is no device \"{}\" (examples: host, cuda:0)", name);
    }
    TRY(find_gpus());
    for (auto& gpu : gpus_) {
        if (gpu->info().name == name) return gpu.get();
    }
    return fail(ENODEV, "there is no device \"{}\": this process sees {} GPUs", name, gpus_.size());
}

Result<Device*> LocalDevices::by_uuid(std::string_view uuid, std::string_view name_at_daemon) {
    MutexLock lock(mutex_);
    if (uuid.empty()) return host();
    if (auto found = find_gpus(); !found) {
        return fail(found.error().code, "gshmd's {} ({}) cannot be used in this process: {}; check CUDA_VISIBLE_DEVICES, or "
                                        "open with GSHM_NO_MAP to copy through gshmd",
                    name_at_daemon, uuid, found.error().message);
    }
    for (auto& gpu : gpus_) {
        if (gpu->info().uuid == uuid) return gpu.get();
    }
    return fail(ENODEV, "gshmd's {} ({}) is not visible in this process: check CUDA_VISIBLE_DEVICES, or open with "
                        "GSHM_NO_MAP to copy through gshmd", name_at_daemon, uuid);
}

std::vector<DeviceInfo> LocalDevices::infos() {
    MutexLock lock(mutex_);
    std::vector<DeviceInfo> infos;
    if (find_gpus()) {
        for (auto& gpu : gpus_) infos.push_back(gpu->info());
    }
    if (auto device = host()) infos.push_back((*device)->info());
    return infos;
}

}  // namespace gshm::client
