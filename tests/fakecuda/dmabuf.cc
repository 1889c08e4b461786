// fakecuda, a test double of NVIDIA's driver: dma-bufs, out as descriptors of a range and in as external memory.
//
// The stand-in for a dma-buf is a descriptor of the memfd that is open for writing alone, so that the CPU cannot map
// it, and whose file position is the start of the range. It does not know the range's end.
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "address.h"
#include "allocation.h"
#include "call.h"
#include "config.h"

namespace fakecuda {
namespace {

constexpr unsigned long long kPcieMapping = 1;  // a flag that the driver knows, and that this board has not

bool is_dmabuf(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && (flags & O_PATH) == 0;
}

Reservation* find_external(State& all, CUdeviceptr pointer) {
    Reservation* found = all.reservation_at(pointer, 1);
    return found != nullptr && found->external && found->opened == 0 && found->mappings.contains(pointer) ? found
                                                                                                          : nullptr;
}

}  // namespace

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t size, int type,
                                       unsigned long long flags) {
    Call call(Symbol::cuMemGetHandleForAddressRange, Scope::context);
    CUdeviceptr start = 0;
    Mapping* found = call.mapping(pointer, &start);
    if (CUresult refused = call.refusal()) return refused;
    if (!config().dmabuf || flags == kPcieMapping) return kErrorNotSupported;
    if (handle == nullptr || type != kMemRangeHandleTypeDmaBufFd || flags != 0) return kErrorInvalidValue;
    if (size == 0 || size % kPage != 0 || pointer % kPage != 0) return kErrorInvalidValue;
    // A range over two mappings is more than one memfd; the driver could do that.
    if (found == nullptr || size > found->size - (pointer - start)) return kErrorInvalidValue;
    int fd = reopen(*found->memory, O_WRONLY);
    if (fd < 0) return kErrorOutOfMemory;
    lseek(fd, static_cast<off_t>(found->offset + (pointer - start)), SEEK_SET);
    *static_cast<int*>(handle) = fd;
    return kSuccess;
}

CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUexternalMemoryHandleDesc* descriptor) {
    Call call(Symbol::cuImportExternalMemory, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (memory == nullptr || descriptor == nullptr || descriptor->size == 0) return kErrorInvalidValue;
    const int fd = descriptor->handle.fd;
    if (fd < 0 || fcntl(fd, F_GETFD) < 0) return kErrorInvalidValue;
    if (descriptor->type != kExternalMemoryDmaBufFd || !config().dmabuf_import || !is_dmabuf(fd)) {
        return kErrorNotSupported;
    }
    Opened opened = open_allocation(("/proc/self/fd/" + std::to_string(fd)).c_str());
    if (opened.memory == nullptr) return opened.result == kErrorUnknown ? kErrorNotSupported : opened.result;
    auto offset = static_cast<size_t>(lseek(fd, 0, SEEK_CUR));
    if (offset >= opened.memory->size || descriptor->size > opened.memory->size - offset) return kErrorNotSupported;
    close(fd);  // ours from here on
    *memory = new CUextMemory_st{std::move(opened.memory), offset, descriptor->size, &call.context_device().context};
    state().external.insert(*memory);
    return kSuccess;
}

// Addresses keep the offset's place within a large page, as the driver's do.
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* pointer, CUexternalMemory memory,
                                         const CUexternalMemoryBufferDesc* descriptor) {
    Call call(Symbol::cuExternalMemoryGetMappedBuffer, Scope::context);
    CUextMemory_st* found = call.external(memory);
    if (CUresult refused = call.refusal()) return refused;
    if (pointer == nullptr || found == nullptr || descriptor == nullptr) return kErrorInvalidValue;
    if (descriptor->flags != 0 || descriptor->size == 0 || descriptor->offset > found->size ||
        descriptor->size > found->size - descriptor->offset) {
        return kErrorInvalidValue;
    }
    const size_t skipped = descriptor->offset % kGranularity;
    const size_t size = (skipped + descriptor->size + kGranularity - 1) / kGranularity * kGranularity;
    CUdeviceptr start = reserve_addresses(size, kGranularity);
    if (start == 0) return kErrorOutOfMemory;
    Reservation& made = state().reservations[start];
    made.size = size;
    made.external = true;
    made.mappings[start + skipped] = {found->memory,
                                      found->offset + descriptor->offset,
                                      descriptor->size,
                                      {{call.context_device().physical, kMemAccessProtReadWrite}}};
    *pointer = start + skipped;
    return kSuccess;
}

// The buffers mapped from it stay.
CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    Call call(Symbol::cuDestroyExternalMemory, Scope::context);
    CUextMemory_st* found = call.external(memory);
    CUresult refused = call.refusal();
    if (found == nullptr && (refused == kSuccess || refused == kErrorInvalidContext)) return kErrorInvalidValue;
    if (refused != kSuccess) return refused;
    state().external.erase(memory);
    delete memory;
    return kSuccess;
}

// Frees memory of cuExternalMemoryGetMappedBuffer or cuMemAlloc.
CUresult cuMemFree_v2(CUdeviceptr pointer) {
    Call call(Symbol::cuMemFree_v2, Scope::context);
    Reservation* found = call.admitted() ? find_external(state(), pointer) : nullptr;
    if (found != nullptr) {
        const int physical = found->mappings.begin()->second.access.begin()->first;
        call.use(&state().devices[physical]->context);
    }
    CUresult refused = call.refusal();
    if (found == nullptr && (refused == kSuccess || refused == kErrorInvalidContext)) {
        return pointer == 0 ? kSuccess : kErrorInvalidValue;
    }
    if (refused != kSuccess) return refused;
    const CUdeviceptr start = pointer / kGranularity * kGranularity;
    const size_t size = found->size;
    state().reservations.erase(start);
    free_addresses(start, size);
    return kSuccess;
}

}  // namespace fakecuda
