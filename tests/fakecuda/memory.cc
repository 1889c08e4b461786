// fakecuda, a test double of NVIDIA's driver: physical memory and its handles.
#include "allocation.h"
#include "call.h"
#include "config.h"

namespace fakecuda {
namespace {

constexpr int kWindowsHandleTypes = 2 | 4;

bool is_valid(const CUmemAllocationProp* properties) {
    return properties != nullptr && properties->type == kMemAllocationTypePinned &&
           properties->location.type == kMemLocationTypeDevice &&
           (properties->requestedHandleTypes & kWindowsHandleTypes) == 0 &&
           properties->allocFlags.compressionType <= kMemCompressionGeneric;
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties, int option) {
    Call call(Symbol::cuMemGetAllocationGranularity, Scope::memory);
    if (properties != nullptr) call.device(properties->location.id);
    if (CUresult refused = call.refusal()) return refused;
    // Nothing else of the properties is looked at.
    if (granularity == nullptr || properties == nullptr || option < 0 || option > 1) return kErrorInvalidValue;
    *granularity = kGranularity;
    return kSuccess;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
    Call call(Symbol::cuMemCreate, Scope::memory);
    Device* device = properties == nullptr ? nullptr : call.device(properties->location.id);
    if (CUresult refused = call.refusal()) return refused;
    if (handle == nullptr || flags != 0 || !is_valid(properties)) return kErrorInvalidValue;
    if (size == 0 || size % kGranularity != 0) return kErrorInvalidValue;
    if (device == nullptr) return kErrorInvalidDevice;
    if ((properties->requestedHandleTypes & kMemHandleTypeFabric) != 0 && !config().fabric) return kErrorNotPermitted;
    const size_t total = config().memory_bytes - others_bytes();
    if (device->used_bytes > total || size > total - device->used_bytes) return kErrorOutOfMemory;
    auto memory = create_allocation(*device, *properties, size);
    if (memory == nullptr) return kErrorOutOfMemory;
    *handle = state().next_handle++;
    state().handles[*handle] = {std::move(memory), false};
    return kSuccess;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    Call call(Symbol::cuMemRelease, Scope::memory);
    Handle* found = call.handle(handle);
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr) return kErrorInvalidValue;
    state().handles.erase(handle);
    return kSuccess;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    Call call(Symbol::cuMemGetAllocationPropertiesFromHandle, Scope::memory);
    Handle* found = call.handle(handle);
    if (CUresult refused = call.refusal()) return refused;
    if (properties == nullptr || found == nullptr) return kErrorInvalidValue;
    const Allocation& memory = *found->memory;
    CUmemAllocationProp made = {};
    made.type = kMemAllocationTypePinned;
    made.location.type = kMemLocationTypeDevice;
    while (state().device(made.location.id) != &memory.device) ++made.location.id;
    made.allocFlags.compressionType = memory.compressed ? kMemCompressionGeneric : 0;
    if (!found->imported) {
        made.requestedHandleTypes = memory.types;
        made.allocFlags.gpuDirectRDMACapable = memory.rdma ? 1 : 0;
    }
    *properties = made;
    return kSuccess;
}

}  // namespace fakecuda
