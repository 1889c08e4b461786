// fakecuda, a test double of NVIDIA's driver: the exported calls, generated from the list in src/cuda/api.h and from
// the list below of calls that gshm does not use.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda/api.h"

namespace fakecuda {
class Lane;
}  // namespace fakecuda

// The structs behind handles that are opaque to callers.
namespace gshm::core::cuda {

struct CUctx_st {
    int physical;  // device number, whatever CUDA_VISIBLE_DEVICES says
};

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    std::shared_ptr<fakecuda::Lane> lane;
    unsigned long long id;  // no other stream's, ever
};

// The position in a stream at the last record.
struct CUevent_st {
    CUcontext context;
    std::shared_ptr<fakecuda::Lane> lane;
    uint64_t ticket;
};

}  // namespace gshm::core::cuda

namespace fakecuda {

using namespace gshm::core::cuda;

using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;

// X(member, exported symbol, signature). For examples/test_client alone; see kernels.cc.
#define FAKECUDA_KERNEL_CALLS(X)                                                                                   \
    X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size))                                              \
    X(pointer_get_attribute, cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr pointer))             \
    X(module_load_data, cuModuleLoadData, (CUmodule * module, const void* image))                                  \
    X(module_unload, cuModuleUnload, (CUmodule module))                                                            \
    X(module_get_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))        \
    X(launch_kernel, cuLaunchKernel,                                                                               \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
       unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))

#define FAKECUDA_DECLARE(member, symbol, signature) \
    extern "C" __attribute__((visibility("default"))) CUresult symbol signature;
GSHM_CUDA_CALLS(FAKECUDA_DECLARE)
FAKECUDA_KERNEL_CALLS(FAKECUDA_DECLARE)
#undef FAKECUDA_DECLARE

// For tests. How often a symbol was called in this process (nullptr: all calls together; "_v2" may be left out), and
// a line that says this is no driver.
extern "C" __attribute__((visibility("default"))) unsigned long fakecuda_calls(const char* symbol);
extern "C" __attribute__((visibility("default"))) const char* fakecuda_identity(void);
// A held stream (other than 0) starts none of its work. 0: the stream exists; -1: it does not.
extern "C" __attribute__((visibility("default"))) int fakecuda_hold(CUstream stream, int held);

enum class Symbol : int {
#define FAKECUDA_NAME(member, symbol, signature) symbol,
    GSHM_CUDA_CALLS(FAKECUDA_NAME) FAKECUDA_KERNEL_CALLS(FAKECUDA_NAME)
#undef FAKECUDA_NAME
        count
};

inline constexpr size_t kSymbolCount = static_cast<size_t>(Symbol::count);
inline constexpr size_t kGranularity = size_t{2} << 20;
inline constexpr size_t kPage = 4096;
inline constexpr CUresult kErrorInvalidImage = 200;
inline constexpr CUresult kErrorNotFound = 500;
inline constexpr CUresult kErrorContextIsDestroyed = 709;
inline constexpr CUresult kErrorHostMemoryNotRegistered = 713;

const char* symbol_name(Symbol symbol);

// The symbol of that name, with or without its version suffix; Symbol::count where there is none.
Symbol find_symbol(const char* name);

}  // namespace fakecuda
