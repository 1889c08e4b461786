// The part of the CUDA driver that test_client uses: declarations of a few calls, loaded from libcuda.so.1 at run time.
// The program therefore builds without a CUDA toolkit and starts on machines without a GPU.
#pragma once

#include <cerrno>
#include <cstddef>
#include <dlfcn.h>
#include <string>

#include <gshm/gshm.hpp>

namespace cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;

struct CUmemLocation {
    int type;
    int id;
};

struct CUmemAllocationProp {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void* win32HandleMetaData;
    unsigned char allocFlags[8];
};

struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
};

inline constexpr CUresult kSuccess = 0;
inline constexpr int kMemLocationTypeDevice = 1;
inline constexpr int kMemHandleTypeFabric = 8;
inline constexpr int kMemAccessProtRead = 1;
inline constexpr int kMemAccessProtReadWrite = 3;
inline constexpr int kPointerAttributeDeviceOrdinal = 9;

// X(member, exported symbol, signature); the symbols are those to which cuda.h maps the plain names.
#define EXAMPLE_CUDA_CALLS(X)                                                                                          \
    X(init, cuInit, (unsigned flags))                                                                                  \
    X(get_error_name, cuGetErrorName, (CUresult error, const char** name))                                             \
    X(get_error_string, cuGetErrorString, (CUresult error, const char** text))                                         \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                            \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                            \
    X(ctx_push, cuCtxPushCurrent_v2, (CUcontext context))                                                              \
    X(ctx_pop, cuCtxPopCurrent_v2, (CUcontext * context))                                                              \
    X(mem_import, cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void* shareable, int type))  \
    X(mem_get_properties, cuMemGetAllocationPropertiesFromHandle,                                                      \
      (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))                                         \
    X(mem_release, cuMemRelease, (CUmemGenericAllocationHandle handle))                                                \
    X(mem_address_reserve, cuMemAddressReserve,                                                                        \
      (CUdeviceptr * pointer, size_t size, size_t alignment, CUdeviceptr address, unsigned long long flags))           \
    X(mem_address_free, cuMemAddressFree, (CUdeviceptr pointer, size_t size))                                          \
    X(mem_map, cuMemMap,                                                                                               \
      (CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,                           \
       unsigned long long flags))                                                                                      \
    X(mem_unmap, cuMemUnmap, (CUdeviceptr pointer, size_t size))                                                       \
    X(mem_set_access, cuMemSetAccess,                                                                                  \
      (CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count))                            \
    X(pointer_get_attribute, cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr pointer))                 \
    X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size))                                                  \
    X(mem_free, cuMemFree_v2, (CUdeviceptr pointer))                                                                   \
    X(memset_d8_async, cuMemsetD8Async, (CUdeviceptr destination, unsigned char value, size_t bytes, CUstream stream)) \
    X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, (void* destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                                      \
    X(module_load_data, cuModuleLoadData, (CUmodule * module, const void* image))                                      \
    X(module_unload, cuModuleUnload, (CUmodule module))                                                                \
    X(module_get_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))            \
    X(launch_kernel, cuLaunchKernel,                                                                                   \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
       unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))

class Driver {
public:
#define EXAMPLE_CUDA_MEMBER(member, symbol, signature) CUresult(*member) signature = nullptr;
    EXAMPLE_CUDA_CALLS(EXAMPLE_CUDA_MEMBER)
#undef EXAMPLE_CUDA_MEMBER

    // Loads and starts the driver (cuInit). ENODEV with the reason if there is no working driver.
    static gshm::Result<Driver> load() {
        void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);  // never unloaded
        if (!library) return gshm::Error{ENODEV, ::dlerror()};
        Driver driver;
        const char* missing = nullptr;
#define EXAMPLE_CUDA_LOAD(member, symbol, signature)                                      \
    driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(library, #symbol)); \
    if (!driver.member) missing = #symbol;
        EXAMPLE_CUDA_CALLS(EXAMPLE_CUDA_LOAD)
#undef EXAMPLE_CUDA_LOAD
        if (missing) return gshm::Error{ENODEV, std::string("the driver is too old: it has no ") + missing};
        if (const CUresult result = driver.init(0); result != kSuccess)
            return gshm::Error{ENODEV, driver.describe("cuInit", result)};
        return driver;
    }

    // "cuMemMap: CUDA_ERROR_INVALID_VALUE (invalid argument)"
    std::string describe(const char* call, CUresult result) const {
        const char* name = nullptr;
        const char* text = nullptr;
        if (get_error_name(result, &name) != kSuccess || !name) name = "unknown CUDA error";
        if (get_error_string(result, &text) != kSuccess || !text) text = "no description";
        return std::string(call) + ": " + name + " (" + text + ")";
    }

    // Throws gshm::Exception unless the call succeeded.
    void check(const char* call, CUresult result) const {
        if (result != kSuccess) throw gshm::Exception({EIO, describe(call, result)});
    }
};

// A retained primary context, current in this thread during its lifetime.
class Context {
public:
    Context(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {
        CUcontext context = nullptr;
        driver_.check("cuDevicePrimaryCtxRetain", driver_.primary_ctx_retain(&context, device_));
        if (const CUresult result = driver_.ctx_push(context); result != kSuccess) {
            driver_.primary_ctx_release(device_);
            driver_.check("cuCtxPushCurrent", result);
        }
    }
    ~Context() {
        CUcontext popped = nullptr;
        driver_.ctx_pop(&popped);
        driver_.primary_ctx_release(device_);
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

private:
    const Driver& driver_;
    const CUdevice device_;
};

}  // namespace cuda
