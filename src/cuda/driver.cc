#include "cuda/driver.h"

#include <atomic>
#include <dlfcn.h>
#include <mutex>
#include <unistd.h>

namespace gshm::core::cuda {
namespace {

int to_errno(CUresult result) {
    switch (result) {
        case kErrorInvalidValue:
        case kErrorInvalidHandle: return EINVAL;
        case kErrorOutOfMemory: return ENOSPC;
        case kErrorNoDevice:
        case kErrorInvalidDevice:
        case kErrorNotInitialized:
        case kErrorDeinitialized: return ENODEV;
        case kErrorNotPermitted: return EPERM;
        case kErrorNotSupported: return EOPNOTSUPP;
        default: return EIO;
    }
}

// After these errors the process's context, or the GPU itself, is unusable.
bool is_fatal(CUresult result) {
    switch (result) {
        case kErrorDeinitialized:
        case kErrorEccUncorrectable:
        case kErrorNvlinkUncorrectable:
        case kErrorContained:
        case kErrorIllegalAddress:
        case kErrorHardwareStackError:
        case kErrorMisalignedAddress:
        case kErrorInvalidAddressSpace:
        case kErrorInvalidPc:
        case kErrorLaunchFailed:
        case kErrorExternalDevice:
        case kErrorUnknown: return true;
        default: return result > 713 && result < 720;
    }
}

}  // namespace

std::unexpected<Error> Driver::failure(const char* call, CUresult result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (get_error_name(result, &name) != kSuccess || name == nullptr) name = "unknown CUDA error";
    if (get_error_string(result, &text) != kSuccess || text == nullptr) text = "no description";
    Error error{to_errno(result), fmt::format("{}: {} ({})", call, name, text), is_fatal(result)};
    return std::unexpected(std::move(error));
}

Result<const Driver*> Driver::load() {
    // RTLD_NODELETE: the driver starts threads and must not be unmapped.
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(ENODEV, "no CUDA driver: {}", dlerror());
    auto* driver = new Driver;  // never destroyed
#define GSHM_CUDA_LOAD(member, symbol, signature) \
    driver->member = reinterpret_cast<decltype(driver->member)>(dlsym(library, #symbol));
    GSHM_CUDA_CALLS(GSHM_CUDA_LOAD)
#undef GSHM_CUDA_LOAD
    const bool complete = driver->init != nullptr && driver->get_error_name != nullptr &&
                          driver->get_error_string != nullptr && driver->device_get_uuid != nullptr &&
                          driver->mem_create != nullptr && driver->mem_set_access != nullptr;
    if (!complete) {
        delete driver;
        return fail(ENODEV, "the CUDA driver is too old: it has no virtual memory management (CUDA 11.4 or newer has)");
    }
    if (CUresult result = driver->init(0); result != kSuccess) {
        auto error = driver->failure("cuInit", result);
        delete driver;
        error.error().code = ENODEV;
        error.error().device_lost = false;
        return error;
    }
    return driver;
}

const Driver* Driver::started() {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    // A program may be linked with the driver and never start it. This call reports that without starting it.
    using Count = CUresult (*)(int*);
    auto count_devices = reinterpret_cast<Count>(dlsym(library, "cuDeviceGetCount"));
    int count = 0;
    bool usable = count_devices != nullptr && count_devices(&count) == kSuccess;
    dlclose(library);
    auto driver = usable ? get() : nullptr;
    return driver ? *driver : nullptr;
}

Result<const Driver*> Driver::get() {
    struct State {
        std::mutex mutex;  // guards the variables below
        bool tried = false;
        pid_t pid = 0;
        Result<const Driver*> driver = nullptr;
    };
    static auto* state = new State;
    // Read without the lock first: that is the common case, and in a forked child the lock may be held for ever.
    static std::atomic<pid_t> owner{0};
    pid_t me = getpid();
    pid_t loaded_by = owner.load(std::memory_order_acquire);
    if (loaded_by != 0 && loaded_by != me) {
        return fail(ECHILD, "CUDA was started before fork() and cannot be used in the child; use exec or spawn");
    }
    std::lock_guard lock(state->mutex);
    if (!state->tried) {
        state->tried = true;
        state->driver = load();
        if (state->driver) owner.store(me, std::memory_order_release);
    }
    return state->driver;
}

}  // namespace gshm::core::cuda
