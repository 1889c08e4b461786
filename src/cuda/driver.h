// The CUDA driver, loaded at run time. "present" (the library loads and finds a GPU) is separate from "works here":
// each device says for itself what it can do.
#pragma once

#include "base/result.h"
#include "cuda/api.h"

namespace gshm::cuda {

class Driver {
public:
    // The process's driver: loaded and initialised (cuInit) on first use, never unloaded. Makes no context.
    // ENODEV with the reason where there is none. After fork() the child of a process that had it gets ECHILD.
    static Result<const Driver*> get();
    // The same where somebody in this process has called cuInit already; else null, and nothing is loaded or started:
    // no address can be a GPU's then. Null in a forked child, too, where those of the parent mean nothing.
    static const Driver* started();

    // One member per call of GSHM_CUDA_CALLS. Calls that an older driver lacks are null.
#define GSHM_CUDA_MEMBER(member, symbol, signature) CUresult(*member) signature = nullptr;
    GSHM_CUDA_CALLS(GSHM_CUDA_MEMBER)
#undef GSHM_CUDA_MEMBER

    // "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" with the errno that fits.
    std::unexpected<Error> failure(const char* call, CUresult result) const;
    Status check(const char* call, CUresult result) const {
        if (result == kSuccess) return {};
        return failure(call, result);
    }

private:
    static Result<const Driver*> load();
};

// Makes a device's primary context current for the calling thread while it lives, whatever was current before.
class ScopedContext {
public:
    ScopedContext(const Driver& driver, CUcontext context) : driver_(driver), result_(driver.ctx_push(context)) {}
    ~ScopedContext() {
        CUcontext popped = nullptr;
        if (result_ == kSuccess) driver_.ctx_pop(&popped);
    }
    ScopedContext(const ScopedContext&) = delete;
    ScopedContext& operator=(const ScopedContext&) = delete;
    Status status() const { return driver_.check("cuCtxPushCurrent", result_); }

private:
    const Driver& driver_;
    CUresult result_;
};

}  // namespace gshm::cuda
