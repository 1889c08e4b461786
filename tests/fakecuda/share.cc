// fakecuda, a test double of NVIDIA's driver: memory handed to other processes, as descriptors and as fabric handles.
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "allocation.h"
#include "call.h"
#include "config.h"

namespace fakecuda {
namespace {

constexpr char kFabricMagic[16] = "fakecuda fabric";

// The contents of the 64 bytes: the place of the memfd while the exporter has it.
struct FabricLabel {
    char magic[16];
    int32_t pid;
    int32_t fd;
    uint64_t inode;
    uint8_t zero[32];
};
static_assert(sizeof(FabricLabel) == sizeof(CUmemFabricHandle));

// O_PATH: such a descriptor can be passed on and imported, but neither read nor mapped by the CPU, like the driver's.
CUresult export_fd(void* shareable, const Allocation& memory) {
    int fd = reopen(memory, O_PATH);
    if (fd < 0) return kErrorOutOfMemory;
    memcpy(shareable, &fd, sizeof fd);
    return kSuccess;
}

void export_fabric(void* shareable, const Allocation& memory) {
    FabricLabel label = {};
    memcpy(label.magic, kFabricMagic, sizeof kFabricMagic);
    label.pid = getpid();
    label.fd = memory.fd;
    label.inode = memory.inode;
    memcpy(shareable, &label, sizeof label);
}

// The driver takes the descriptor in place of the pointer and leaves it open. It returns "unknown error" for a foreign
// descriptor, without further harm.
Opened import_fd(void* shareable) {
    auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
    return open_allocation(("/proc/self/fd/" + std::to_string(fd)).c_str());
}

Opened import_fabric(const void* shareable) {
    const FabricLabel nothing = {};
    FabricLabel label = {};
    memcpy(&label, shareable, sizeof label);
    if (memcmp(label.magic, kFabricMagic, sizeof kFabricMagic) != 0 ||
        memcmp(label.zero, nothing.zero, sizeof label.zero) != 0) {
        return {kErrorNotSupported, nullptr};
    }
    if (!config().fabric) return {kErrorNotPermitted, nullptr};
    std::string path = "/proc/" + std::to_string(label.pid) + "/fd/" + std::to_string(label.fd);
    Opened opened = open_allocation(path.c_str(), label.inode);
    if (opened.result == kErrorUnknown) opened.result = kErrorInvalidValue;  // the exporter does not have it any more
    return opened;
}

}  // namespace

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
    Call call(Symbol::cuMemExportToShareableHandle, Scope::memory);
    Handle* found = call.handle(handle);
    if (CUresult refused = call.refusal()) return refused;
    if (shareable == nullptr || found == nullptr || flags != 0 || found->imported) return kErrorInvalidValue;
    if (type != kMemHandleTypePosixFd && type != kMemHandleTypeFabric) return kErrorInvalidValue;
    if ((found->memory->types & type) == 0) return kErrorInvalidValue;
    if (type == kMemHandleTypePosixFd) return export_fd(shareable, *found->memory);
    export_fabric(shareable, *found->memory);
    return kSuccess;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable, int type) {
    Call call(Symbol::cuMemImportFromShareableHandle, Scope::memory);
    Opened opened;
    if (call.admitted() && handle != nullptr) {
        if (type == kMemHandleTypePosixFd) opened = import_fd(shareable);
        if (type == kMemHandleTypeFabric && shareable != nullptr) opened = import_fabric(shareable);
        if (opened.memory != nullptr) call.concerns(opened.memory->device);
    }
    if (CUresult refused = call.refusal()) return refused;
    if (handle == nullptr || type == 0) return kErrorInvalidValue;
    if (type != kMemHandleTypePosixFd && type != kMemHandleTypeFabric) return kErrorNotSupported;
    if (type == kMemHandleTypeFabric && shareable == nullptr) return kErrorInvalidValue;
    if (opened.memory == nullptr) return opened.result;
    *handle = state().next_handle++;
    state().handles[*handle] = {std::move(opened.memory), true};
    return kSuccess;
}

}  // namespace fakecuda
