// fakecuda, a test double of NVIDIA's driver: primary contexts, the stack of current ones.
#include <algorithm>

#include "call.h"
#include "config.h"

namespace fakecuda {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    Call call(Symbol::cuDevicePrimaryCtxRetain, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (context == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    // A context that was lost is still there to be retained, but no new one is made in its place.
    if (found->retained == 0 && found->lost != kSuccess) return found->lost;
    ++found->retained;
    *context = &found->context;
    return kSuccess;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    Call call(Symbol::cuDevicePrimaryCtxRelease_v2, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (found == nullptr) return kErrorInvalidDevice;
    if (found->retained == 0) return kErrorInvalidContext;
    if (--found->retained == 0) state().drop_context(*found);
    return kSuccess;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    Call call(Symbol::cuDevicePrimaryCtxGetState, Scope::device);
    Device* found = call.device(device);
    if (CUresult refused = call.refusal()) return refused;
    if (flags == nullptr || active == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidDevice;
    *flags = 0;
    *active = found->retained != 0 ? 1 : 0;
    return kSuccess;
}

// Not counted as a call: it changes nothing, and tests count the calls that do.
CUresult cuCtxGetCurrent(CUcontext* context) {
    if (context == nullptr) return kErrorInvalidValue;
    *context = context_stack().empty() ? nullptr : context_stack().back();
    return kSuccess;
}

// A destroyed context can be pushed; calls in it fail.
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    Call call(Symbol::cuCtxPushCurrent_v2, Scope::device);
    Device* found = call.admitted() ? state().device_of(context) : nullptr;
    if (found != nullptr) call.concerns(*found);
    if (CUresult refused = call.refusal()) return refused;
    if (context == nullptr) return kErrorInvalidValue;
    if (found == nullptr) return kErrorInvalidContext;
    context_stack().push_back(context);
    return kSuccess;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    Call call(Symbol::cuCtxPopCurrent_v2, Scope::device);
    if (call.admitted() && !context_stack().empty()) {
        call.concerns(*state().device_of(context_stack().back()));
    }
    if (CUresult refused = call.refusal()) return refused;
    if (context_stack().empty()) return kErrorInvalidContext;
    if (context != nullptr) *context = context_stack().back();
    context_stack().pop_back();
    return kSuccess;
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    Call call(Symbol::cuMemGetInfo_v2, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    const size_t total = config().memory_bytes;
    // Imported memory counts too, and may exceed the capacity of this process.
    const size_t used = call.context_device().used_bytes + others_bytes();
    if (free_bytes != nullptr) *free_bytes = total - std::min(total, used);
    if (total_bytes != nullptr) *total_bytes = total;
    return kSuccess;
}

}  // namespace fakecuda
