// fakecuda, a test double of NVIDIA's driver: the common start of every call. It is counted, takes the lock, and fails
// before cuInit, in a forked child, for an injected failure, or if its device was lost.
#pragma once

#include <mutex>

#include "state.h"

namespace fakecuda {

enum class Scope {
    driver,   // works before cuInit and in a forked child
    device,   // asks about a device; works when that is lost
    memory,   // the VMM calls: work when the context is lost, not when the device is
    context,  // needs a context that is not lost
};

unsigned long call_count(Symbol symbol);

// Use: construct it, look up the arguments (each look-up records the device that the call concerns), then call
// refusal() once and return its result unless that is kSuccess. Look-ups find nothing if the call is refused anyway.
// The lock is held during the lifetime of the Call.
class Call {
public:
    Call(Symbol symbol, Scope scope);

    void concerns(const Device& device);
    Device* device(CUdevice ordinal);
    Handle* handle(CUmemGenericAllocationHandle handle);
    Mapping* mapping(CUdeviceptr pointer, CUdeviceptr* start = nullptr);
    // The context to use, for calls that do not use the thread's current one. nullptr is ignored.
    void use(CUcontext context) { chosen_ = context; }
    // The stream's own context, or the current one with a default stream. False: no such stream.
    bool use_stream(CUstream stream);
    CUextMemory_st* external(CUexternalMemory memory);

    CUresult refusal();

    // Of the context in use, after refusal() has found nothing wrong with a call of Scope::context.
    Device& context_device() { return *context_device_; }
    bool admitted() const { return admitted_; }
    std::unique_lock<std::mutex>& lock() { return lock_; }
    void unlock() { lock_.unlock(); }
    void relock() { lock_.lock(); }

private:
    void lose(uint64_t devices, CUresult code);
    CUresult lost() const;
    CUresult check_context();

    const Symbol symbol_;
    const Scope scope_;
    bool admitted_ = false;
    std::unique_lock<std::mutex> lock_;
    CUcontext chosen_ = nullptr;
    Device* context_device_ = nullptr;
    uint64_t devices_ = 0;
};

}  // namespace fakecuda
