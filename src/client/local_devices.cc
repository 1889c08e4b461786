#include "client/local_devices.h"

#include <cstring>

namespace gshm::core::client {

LocalDevices& LocalDevices::instance() {
    // Never destroyed: extents may outlive main(), and the driver may be gone before static destructors run.
    static auto* devices = new LocalDevices;
    return *devices;
}

Result<LocalDevices::Known*> LocalDevices::search(const DeviceKind& kind) {
    if (kind.check != nullptr) TRY(kind.check());
    Known& known = known_[&kind];
    if (known.searched) return &known;
    auto opened = TRY(kind.open("", 0));
    // A device that was opened by name before is kept.
    for (auto& device : opened.devices) known.devices.push_back(std::move(device));
    known.searched = true;
    return &known;
}

Result<Device*> LocalDevices::by_name(std::string_view name) {
    const DeviceKind* kind = find_device_kind(name);
    const bool is_one = kind != nullptr && (kind->selects ? !name.ends_with(':') : name == kind->name);
    if (!is_one) {
        return fail(ENODEV, "there is no device \"{}\" (examples: {})", name, device_spec_examples());
    }
    MutexLock lock(mutex_);
    auto found = search(*kind);
    Known& known = known_[kind];
    if (found) {
        if (name == kind->name && !known.devices.empty()) return known.devices.front().get();
        for (auto& device : known.devices) {
            if (device->info().name == name) return device.get();
        }
    }
    if (auto earlier = known.by_spec.find(name); earlier != known.by_spec.end()) return earlier->second;
    if (name == kind->name) {
        if (!found) return std::unexpected(std::move(found.error()));
        return fail(ENODEV, "there is no device \"{}\" here", name);
    }
    auto opened = TRY(kind->open(name.substr(strlen(kind->name) + 1), 0));
    if (opened.devices.empty()) return fail(ENODEV, "there is no device \"{}\" here", name);
    known.devices.push_back(std::move(opened.devices.front()));
    return known.by_spec.emplace(name, known.devices.back().get()).first->second;
}

Result<Device*> LocalDevices::find(const DeviceKind& kind, std::string_view uuid, std::string_view name) {
    auto found = search(kind);
    if (!found && kind.open_foreign == nullptr) return std::unexpected(std::move(found.error()));
    Known& known = known_[&kind];
    for (auto& device : known.devices) {
        if (device->info().uuid == uuid) return device.get();
    }
    if (kind.open_foreign == nullptr) return nullptr;
    known.devices.push_back(TRY(kind.open_foreign(name, uuid)));
    return known.devices.back().get();
}

Result<Device*> LocalDevices::by_uuid(std::string_view uuid, std::string_view name_at_daemon) {
    const DeviceKind* kind = find_device_kind(name_at_daemon);
    if (kind == nullptr) {
        return fail(ENODEV,
                    "gshmd's {} is of a kind that this libgshm does not know; open with GSHM_NO_MAP to copy through "
                    "gshmd",
                    name_at_daemon);
    }
    MutexLock lock(mutex_);
    auto found = find(*kind, uuid, name_at_daemon);
    if (!found) {
        return fail(found.error().code,
                    "gshmd's {} ({}) cannot be used in this process: {}; check CUDA_VISIBLE_DEVICES, or "
                    "open with GSHM_NO_MAP to copy through gshmd",
                    name_at_daemon, uuid, found.error().message);
    }
    if (*found != nullptr) return *found;
    return fail(ENODEV,
                "gshmd's {} ({}) is not visible in this process: check CUDA_VISIBLE_DEVICES, or open with "
                "GSHM_NO_MAP to copy through gshmd",
                name_at_daemon, uuid);
}

std::vector<DeviceInfo> LocalDevices::infos() {
    MutexLock lock(mutex_);
    std::vector<DeviceInfo> infos;
    for (const DeviceKind* kind : device_kinds()) {
        auto found = search(*kind);
        if (!found) continue;
        for (auto& device : (*found)->devices) infos.push_back(device->info());
    }
    return infos;
}

}  // namespace gshm::core::client
