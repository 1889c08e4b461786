// fakecuda, a test double of NVIDIA's driver: pointer attributes, and IPC handles for memory of cuMemAlloc.
#include <cstring>
#include <string>
#include <unistd.h>

#include "address.h"
#include "allocation.h"
#include "call.h"

namespace fakecuda {
namespace {

constexpr char kIpcMagic[16] = "fakecuda ipc";
constexpr int kNoOrdinal = -2;  // of an address that is not the driver's

// The contents of the 64 bytes: the place of the memfd while the exporter has it.
struct IpcLabel {
    char magic[16];
    int32_t pid;
    int32_t fd;
    uint64_t inode;
    uint8_t zero[32];
};
static_assert(sizeof(IpcLabel) == sizeof(CUipcMemHandle));

int ordinal_of(const Device& device) {
    int ordinal = 0;
    while (state().device(ordinal) != &device) ++ordinal;
    return ordinal;
}

// Memory of cuMemAlloc belongs to a context, memory that was mapped piece by piece to none.
bool is_plain(CUdeviceptr pointer, const Mapping& mapping) {
    return state().reservation_at(pointer, 1)->external && mapping.memory->types == 0;
}

void get_attribute(int attribute, void* value, CUdeviceptr pointer, Mapping* found) {
    unsigned type = found != nullptr ? kMemoryTypeDevice : 0;
    int ordinal = found != nullptr ? ordinal_of(found->memory->device) : kNoOrdinal;
    CUcontext context = found != nullptr && is_plain(pointer, *found) ? &found->memory->device.context : nullptr;
    switch (attribute) {
        case kPointerMemoryType: memcpy(value, &type, sizeof type); break;
        case kPointerDeviceOrdinal: memcpy(value, &ordinal, sizeof ordinal); break;
        case kPointerContext: memcpy(value, &context, sizeof context); break;
        default: break;
    }
}

bool is_known(int attribute) {
    return attribute == kPointerMemoryType || attribute == kPointerDeviceOrdinal || attribute == kPointerContext;
}

}  // namespace

// Of an address that is not the driver's: nothing, and no error.
CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr pointer) {
    Call call(Symbol::cuPointerGetAttributes, Scope::memory);
    Mapping* found = call.mapping(pointer);
    if (CUresult refused = call.refusal()) return refused;
    if (count == 0 || attributes == nullptr || values == nullptr) return kErrorInvalidValue;
    for (unsigned i = 0; i < count; ++i) {
        if (!is_known(attributes[i]) || values[i] == nullptr) return kErrorInvalidValue;
    }
    for (unsigned i = 0; i < count; ++i) get_attribute(attributes[i], values[i], pointer, found);
    return kSuccess;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
    Call call(Symbol::cuMemGetAddressRange_v2, Scope::context);
    CUdeviceptr start = 0;
    Mapping* found = call.mapping(pointer, &start);
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr) return kErrorNotFound;
    if (base != nullptr) *base = start;
    if (size != nullptr) *size = found->size;
    return kSuccess;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
    Call call(Symbol::cuIpcGetMemHandle, Scope::context);
    Mapping* found = call.mapping(pointer);
    if (CUresult refused = call.refusal()) return refused;
    if (handle == nullptr || found == nullptr || !is_plain(pointer, *found)) return kErrorInvalidValue;
    if (state().reservation_at(pointer, 1)->opened > 0) return kErrorInvalidValue;  // another process's
    IpcLabel label = {};
    memcpy(label.magic, kIpcMagic, sizeof kIpcMagic);
    label.pid = getpid();
    label.fd = found->memory->fd;
    label.inode = found->memory->inode;
    memcpy(handle, &label, sizeof label);
    return kSuccess;
}

// Not in the process that has exported it. One that is open already is opened once more, at the same address.
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
    Call call(Symbol::cuIpcOpenMemHandle_v2, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    IpcLabel label = {};
    memcpy(&label, &handle, sizeof label);
    if (pointer == nullptr || flags != kIpcLazyEnablePeerAccess) return kErrorInvalidValue;
    if (memcmp(label.magic, kIpcMagic, sizeof kIpcMagic) != 0) return kErrorInvalidValue;
    if (label.pid == getpid()) return kErrorInvalidContext;
    for (auto& [start, made] : state().reservations) {
        if (made.opened == 0 || made.mappings.begin()->second.memory->inode != label.inode) continue;
        ++made.opened;
        *pointer = start;
        return kSuccess;
    }
    std::string path = "/proc/" + std::to_string(label.pid) + "/fd/" + std::to_string(label.fd);
    Opened opened = open_allocation(path.c_str(), label.inode);
    if (opened.memory == nullptr) return opened.result == kErrorUnknown ? kErrorInvalidValue : opened.result;
    const size_t size = opened.memory->size;
    const CUdeviceptr start = reserve_addresses(size, kGranularity);
    if (start == 0) return kErrorOutOfMemory;
    Reservation& made = state().reservations[start];
    made.size = size;
    made.external = true;
    made.opened = 1;
    const int physical = call.context_device().physical;
    made.mappings[start] = {std::move(opened.memory), 0, size, {{physical, kMemAccessProtReadWrite}}};
    *pointer = start;
    return kSuccess;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    Call call(Symbol::cuIpcCloseMemHandle, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    auto found = state().reservations.find(pointer);
    if (found == state().reservations.end() || found->second.opened == 0) return kErrorInvalidValue;
    if (--found->second.opened > 0) return kSuccess;
    const size_t size = found->second.size;
    state().reservations.erase(found);
    free_addresses(pointer, size);
    return kSuccess;
}

}  // namespace fakecuda
