// The CUDA driver, loaded at run time. Its presence (the library loads and finds a GPU) is separate from its
// capabilities, which each device reports for itself.
#pragma once

#include "base/result.h"
#include "cuda/api.h"

namespace gshm::core::cuda {

class Driver {
public:
    // The driver of this process: loaded and initialised (cuInit) on first use, never unloaded. Makes no context.
    // ENODEV with the reason if there is none. ECHILD in a forked child whose parent had it.
    static Result<const Driver*> get();
    // The driver if this process has already called cuInit; otherwise null, without loading or starting anything: no
    // address can then be a GPU address. Also null in a forked child, where the parent's addresses are meaningless.
    static const Driver* started();

    // One member per call of GSHM_CUDA_CALLS. Calls missing in an older driver are null.
#define GSHM_CUDA_MEMBER(member, symbol, signature) CUresult(*member) signature = nullptr;
    GSHM_CUDA_CALLS(GSHM_CUDA_MEMBER)
#undef GSHM_CUDA_MEMBER

    // An error such as "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", with a matching errno.
    std::unexpected<Error> failure(const char* call, CUresult result) const;
    Status check(const char* call, CUresult result) const {
        if (result == kSuccess) return {};
        return failure(call, result);
    }

private:
    static Result<const Driver*> load();
};

// Makes a device's primary context current in the calling thread during its lifetime, and restores the previous one.
class ScopedContext {
public:
    ScopedContext(const Driver& driver, CUcontext context) : driver_(driver) {
        CUcontext current = nullptr;
        is_current_ = driver.ctx_get_current(&current) == kSuccess && current == context;
        if (!is_current_) result_ = driver.ctx_push(context);
    }
    ~ScopedContext() {
        CUcontext popped = nullptr;
        if (!is_current_ && result_ == kSuccess) driver_.ctx_pop(&popped);
    }
    ScopedContext(const ScopedContext&) = delete;
    ScopedContext& operator=(const ScopedContext&) = delete;
    Status status() const { return driver_.check("cuCtxPushCurrent", result_); }

private:
    const Driver& driver_;
    bool is_current_ = false;  // already, so that nothing is pushed: half the time of a push and a pop
    CUresult result_ = kSuccess;
};

}  // namespace gshm::core::cuda
