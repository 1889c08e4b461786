// fakecuda, a test double of NVIDIA's driver: the checks that all calls share.
#include "call.h"

#include <atomic>
#include <unistd.h>

#include "faults.h"

namespace fakecuda {
namespace {

std::atomic<unsigned long> counts[kSymbolCount];

uint64_t bit(const Device& device) {
    return uint64_t{1} << device.physical;
}

}  // namespace

unsigned long call_count(Symbol symbol) {
    return counts[static_cast<size_t>(symbol)].load(std::memory_order_relaxed);
}

Call::Call(Symbol symbol, Scope scope) : symbol_(symbol), scope_(scope) {
    counts[static_cast<size_t>(symbol)].fetch_add(1, std::memory_order_relaxed);
    State& all = state();
    const pid_t owner = all.pid.load();
    // In a forked child the lock may be held by a thread that does not exist there: never touch it.
    if (owner != 0 && owner != getpid()) return;
    lock_ = std::unique_lock(all.mutex);
    admitted_ = scope == Scope::driver || all.pid.load() != 0;
}

void Call::concerns(const Device& device) {
    devices_ |= bit(device);
}

Device* Call::device(CUdevice ordinal) {
    Device* found = admitted_ ? state().device(ordinal) : nullptr;
    if (found != nullptr) concerns(*found);
    return found;
}

Handle* Call::handle(CUmemGenericAllocationHandle handle) {
    if (!admitted_) return nullptr;
    auto found = state().handles.find(handle);
    if (found == state().handles.end()) return nullptr;
    concerns(found->second.memory->device);
    return &found->second;
}

Mapping* Call::mapping(CUdeviceptr pointer, CUdeviceptr* start) {
    Mapping* found = admitted_ ? state().mapping_at(pointer, start) : nullptr;
    if (found != nullptr) concerns(found->memory->device);
    return found;
}

bool Call::use_stream(CUstream stream) {
    if (!admitted_ || !state().is_stream(stream)) return false;
    if (state().streams.contains(stream)) use(stream->context);
    return true;
}

CUextMemory_st* Call::external(CUexternalMemory memory) {
    if (!admitted_ || !state().external.contains(memory)) return nullptr;
    use(memory->context);
    concerns(memory->memory->device);
    return memory;
}

CUresult Call::check_context() {
    if (chosen_ == nullptr && context_stack().empty()) return kErrorInvalidContext;
    if (context_device_ == nullptr) return kErrorInvalidContext;
    if (context_device_->retained == 0) return kErrorContextIsDestroyed;
    return kSuccess;
}

void Call::lose(uint64_t devices, CUresult code) {
    for (Device* device : state().visible) {
        if ((devices == 0 || (devices & bit(*device)) != 0) && device->lost == kSuccess) device->lost = code;
    }
}

CUresult Call::lost() const {
    if (scope_ == Scope::driver || scope_ == Scope::device) return kSuccess;
    if (scope_ == Scope::context && context_device_->lost != kSuccess) return context_device_->lost;
    CUresult all_lost = kSuccess;
    bool any_works = false;
    for (Device* device : state().visible) {
        const bool gone = is_device_lost(device->lost);
        if (gone && (devices_ & bit(*device)) != 0) return device->lost;
        any_works |= !gone;
        if (gone) all_lost = device->lost;
    }
    return any_works ? kSuccess : all_lost;
}

CUresult Call::refusal() {
    if (!admitted_) return scope_ == Scope::driver && symbol_ != Symbol::cuInit ? kSuccess : kErrorNotInitialized;
    if (scope_ == Scope::context) {
        CUcontext context = chosen_;
        if (context == nullptr && !context_stack().empty()) context = context_stack().back();
        context_device_ = state().device_of(context);
        if (context_device_ != nullptr) concerns(*context_device_);
    }
    if (Fault fault = next_fault(symbol_, devices_); fault.code != kSuccess) {
        if (scope_ != Scope::driver && is_sticky(fault.code)) lose(fault.devices, fault.code);
        return fault.code;
    }
    if (scope_ == Scope::context) {
        if (CUresult result = check_context(); result != kSuccess) return result;
    }
    return lost();
}

}  // namespace fakecuda
