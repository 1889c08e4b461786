// fakecuda, a test double of NVIDIA's driver: cuInit, CUDA_VISIBLE_DEVICES, and questions about devices.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <strings.h>
#include <unistd.h>

#include "call.h"
#include "config.h"

namespace fakecuda {
namespace {

constexpr int kDriverVersion = 13000;
constexpr int kMaxAttribute = 148;

// GPU-fa4ec0NN-0000-4000-8000-0000000000NN: the first eight digits tell a device from the others, fewer do not.
CUuuid make_uuid(int physical) {
    const auto number = static_cast<char>(physical);
    return {{'\xfa', '\x4e', '\xc0', number, 0, 0, '\x40', 0, '\x80', 0, 0, 0, 0, 0, 0, number}};
}

std::string text_of(const CUuuid& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += digits;
    }
    return text;
}

// One entry of the list: a number, with trailing characters ignored, or a unique prefix of a UUID. "GPU-" must be in
// capitals, the digits need not.
Device* find_entry(State& all, std::string entry) {
    entry.erase(0, entry.find_first_not_of(' '));
    if (entry.starts_with("GPU-")) {
        Device* found = nullptr;
        if (entry.size() == 4) return nullptr;
        for (auto& device : all.devices) {
            std::string uuid = text_of(device->uuid);
            if (strncasecmp(uuid.c_str(), entry.c_str(), std::min(uuid.size(), entry.size())) != 0) continue;
            if (found != nullptr) return nullptr;
            found = device.get();
        }
        return found;
    }
    char* end = nullptr;
    long number = strtol(entry.c_str(), &end, 10);
    if (end == entry.c_str() || number < 0 || static_cast<size_t>(number) >= all.devices.size()) return nullptr;
    return all.devices[number].get();
}

// As the driver does: the first entry says whether numbers or UUIDs are meant, one that is invalid ends the list, one
// that comes twice makes cuInit fail.
CUresult select_visible(State& all) {
    if (!config().visible_set) {
        for (auto& device : all.devices) all.visible.push_back(device.get());
        return kSuccess;
    }
    const std::string& list = config().visible;
    const bool by_uuid = list.find("GPU-") == list.find_first_not_of(' ') && !list.empty();
    size_t at = 0;
    while (at <= list.size()) {
        size_t comma = std::min(list.find(',', at), list.size());
        std::string entry = list.substr(at, comma - at);
        if ((entry.find("GPU-") != std::string::npos) != by_uuid) break;
        Device* device = find_entry(all, entry);
        if (device == nullptr) break;
        if (std::ranges::find(all.visible, device) != all.visible.end()) return kErrorInvalidDevice;
        all.visible.push_back(device);
        at = comma + 1;
    }
    return kSuccess;
}

}  // namespace

CUresult cuInit(unsigned flags) {
    Call call(Symbol::cuInit, Scope::driver);
    if (CUresult refused = call.refusal()) return refused;
    if (flags != 0) return kErrorInvalidValue;
    State& all = state();
    if (all.pid.load() != 0) return kSuccess;
    all.devices.clear();
    all.visible.clear();
    for (int i = 0; i < config().devices; ++i) {
        auto device = std::make_unique<Device>();
        device->physical = i;
        device->uuid = make_uuid(i);
        device->context.physical = i;
        all.devices.push_back(std::move(device));
    }
    if (CUresult result = select_visible(all)) return result;
    if (all.visible.empty()) return kErrorNoDevice;
    all.pid.store(getpid());
    return kSuccess;
}

CUresult cuDriverGetVersion(int* version) {
    Call call(Symbol::cuDriverGetVersion, Scope::driver);
    if (CUresult refused = call.refusal()) return refused;
    if (version == nullptr) return kErrorInvalidValue;
    *version = kDriverVersion;
    return kSuccess;
}

CUresult cuDeviceGetCount(int* count) {
    Call call(Symbol::cuDeviceGetCount, Scope::device);
    if (CUresult refused = call.refusal()) return refused;
    if (count == nullptr) return kErrorInvalidValue;
    *count = static_cast<int>(state().visible.size());
    return kSuccess;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    Call call(Symbol::cuDeviceGet, Scope::device);
    Device* found = call.device(ordinal);
    if (CUresult refused = call.refusal()) return refused;
    if (device == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    *device = ordinal;
    return kSuccess;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    Call call(Symbol::cuDeviceGetName, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (name == nullptr || length <= 0) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    snprintf(name, static_cast<size_t>(length), "Fake GPU %d", found->physical);
    return kSuccess;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    Call call(Symbol::cuDeviceGetUuid_v2, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (uuid == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    *uuid = found->uuid;
    return kSuccess;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    Call call(Symbol::cuDeviceGetAttribute, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (value == nullptr || attribute <= 0 || attribute > kMaxAttribute) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    switch (attribute) {
        case 16: *value = 132; break;              // multiprocessors
        case 33: *value = found->physical; break;  // PCI bus
        case 41: *value = 1; break;                // unified addressing
        case 75: *value = 9; break;                // compute capability
        case kAttributeVmmSupported:
        case kAttributePosixFdSupported:
        case kAttributeGpuDirectRdmaWithVmm:
        case kAttributeFabricSupported: *value = 1; break;  // its capability, even if it is not permitted
        case kAttributeGenericCompression: *value = config().compression ? 1 : 0; break;
        case kAttributeDmaBufSupported: *value = config().dmabuf ? 1 : 0; break;
        default: *value = 0; break;
    }
    return kSuccess;
}

// No such place in sysfs: the double has no NUMA node.
CUresult cuDeviceGetPCIBusId(char* bus_id, int length, CUdevice device) {
    Call call(Symbol::cuDeviceGetPCIBusId, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (bus_id == nullptr || length <= 0) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    snprintf(bus_id, static_cast<size_t>(length), "FA4E:%02X:00.0", found->physical);
    return kSuccess;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    Call call(Symbol::cuDeviceTotalMem_v2, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (bytes == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    *bytes = config().memory_bytes;
    return kSuccess;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    Call call(Symbol::cuDeviceCanAccessPeer, Scope::device);
    Device* one = call.device(device);
    Device* other = call.device(peer);
    if (CUresult refused = call.refusal()) return refused;
    if (can == nullptr) return kErrorInvalidValue;
    if (one == nullptr || other == nullptr) return kErrorInvalidDevice;
    *can = one != other && config().peer ? 1 : 0;
    return kSuccess;
}

}  // namespace fakecuda
