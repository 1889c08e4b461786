// fakecuda, a test double of NVIDIA's driver: addresses and their mappings. They are always PROT_NONE for the CPU, so
// that a dereferenced device pointer faults.
#include "address.h"

#include <algorithm>
#include <bit>
#include <sys/mman.h>

#include "call.h"
#include "config.h"

namespace fakecuda {
namespace {

// Whether the mappings cover [pointer, pointer + size) without a gap and without reaching out of it.
bool covers_exactly(Reservation& reservation, CUdeviceptr pointer, size_t size) {
    CUdeviceptr at = pointer;
    while (at < pointer + size) {
        auto found = reservation.mappings.find(at);
        if (found == reservation.mappings.end()) return false;
        at += found->second.size;
    }
    return at == pointer + size;
}

// The reservation of a range that is mapped exactly so; nullptr: there is none.
Reservation* find_mapped(Call& call, CUdeviceptr pointer, size_t size) {
    if (!call.admitted() || size == 0) return nullptr;
    Reservation* found = state().reservation_at(pointer, size);
    if (found == nullptr || found->external || !covers_exactly(*found, pointer, size)) return nullptr;
    for (CUdeviceptr at = pointer; at < pointer + size;) at += call.mapping(at)->size;
    return found;
}

CUresult check_access(const CUmemAccessDesc& wanted, const Reservation& reservation, CUdeviceptr pointer, size_t size) {
    constexpr int kHostTypes[] = {2, 3, 4};
    if (std::ranges::find(kHostTypes, wanted.location.type) != std::end(kHostTypes)) return kErrorNotSupported;
    if (wanted.location.type != kMemLocationTypeDevice) return kErrorInvalidValue;
    if (wanted.flags != 0 && wanted.flags != kMemAccessProtRead && wanted.flags != kMemAccessProtReadWrite) {
        return kErrorInvalidValue;
    }
    const Device* device = state().device(wanted.location.id);
    if (device == nullptr) return kErrorInvalidValue;
    for (auto at = reservation.mappings.find(pointer); at != reservation.mappings.end(); ++at) {
        if (at->first >= pointer + size) break;
        if (&at->second.memory->device != device && !config().peer) return kErrorInvalidDevice;
    }
    return kSuccess;
}

}  // namespace

CUdeviceptr reserve_addresses(size_t size, size_t alignment) {
    if (size > SIZE_MAX - alignment) return 0;
    const size_t length = size + alignment;
    void* mapped = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    const auto from = reinterpret_cast<uintptr_t>(mapped);
    const uintptr_t start = (from + alignment - 1) / alignment * alignment;
    if (start > from) munmap(mapped, start - from);
    if (uintptr_t spare = from + length - (start + size)) munmap(reinterpret_cast<void*>(start + size), spare);
    return start;
}

void free_addresses(CUdeviceptr pointer, size_t size) {
    munmap(reinterpret_cast<void*>(pointer), size);
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr address,
                             unsigned long long flags) {
    Call call(Symbol::cuMemAddressReserve, Scope::memory);
    if (CUresult refused = call.refusal()) return refused;
    if (pointer == nullptr || flags != 0 || size == 0 || size % kGranularity != 0) return kErrorInvalidValue;
    if (alignment != 0 && !std::has_single_bit(alignment)) return kErrorInvalidValue;
    if (address % kGranularity != 0) return kErrorInvalidValue;  // else a wish, not granted
    CUdeviceptr made = reserve_addresses(size, std::max(alignment, kGranularity));
    if (made == 0) return kErrorOutOfMemory;
    state().reservations[made].size = size;
    *pointer = made;
    return kSuccess;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    Call call(Symbol::cuMemAddressFree, Scope::memory);
    if (CUresult refused = call.refusal()) return refused;
    auto found = state().reservations.find(pointer);
    if (found == state().reservations.end() || found->second.size != size || found->second.external ||
        !found->second.mappings.empty()) {
        return kErrorInvalidValue;
    }
    state().reservations.erase(found);
    free_addresses(pointer, size);
    return kSuccess;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    Call call(Symbol::cuMemMap, Scope::memory);
    Handle* found = call.handle(handle);
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr || flags != 0 || size == 0) return kErrorInvalidValue;
    if (offset != 0 || size != found->memory->size) return kErrorNotSupported;
    Reservation* reservation = state().reservation_at(pointer, size);
    if (reservation == nullptr || reservation->external || pointer % kGranularity != 0) return kErrorInvalidValue;
    auto next = reservation->mappings.lower_bound(pointer);
    if (next != reservation->mappings.end() && next->first < pointer + size) return kErrorInvalidValue;
    if (state().mapping_at(pointer, nullptr) != nullptr) return kErrorInvalidValue;
    reservation->mappings[pointer] = {found->memory, 0, size, {}};
    return kSuccess;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
    Call call(Symbol::cuMemUnmap, Scope::memory);
    Reservation* found = find_mapped(call, pointer, size);
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr) return kErrorInvalidValue;
    found->mappings.erase(found->mappings.find(pointer), found->mappings.lower_bound(pointer + size));
    return kSuccess;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count) {
    Call call(Symbol::cuMemSetAccess, Scope::memory);
    Reservation* found = find_mapped(call, pointer, size);
    for (size_t i = 0; descriptors != nullptr && i < count; ++i) {
        if (descriptors[i].location.type == kMemLocationTypeDevice) call.device(descriptors[i].location.id);
    }
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr || descriptors == nullptr || count == 0) return kErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
        if (CUresult result = check_access(descriptors[i], *found, pointer, size)) return result;
    }
    for (auto at = found->mappings.find(pointer); at != found->mappings.lower_bound(pointer + size); ++at) {
        for (size_t i = 0; i < count; ++i) {
            at->second.access[state().device(descriptors[i].location.id)->physical] = descriptors[i].flags;
        }
    }
    return kSuccess;
}

}  // namespace fakecuda
