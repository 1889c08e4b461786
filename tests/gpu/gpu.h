// Tools of the GPU suite: the GPU itself through the bare driver, and owners for handles.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include <gshm/gshm.h>

namespace gshm::core::test {

struct Closer {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
};
using Client = std::unique_ptr<gshm_client, Closer>;
using Object = std::unique_ptr<gshm_object, Closer>;

// Null where it fails; gshm_last_error() says why.
Client connect_to(const std::string& dir);
Object open_object(gshm_client* client, const std::string& name, uint32_t flags = 0);

// Bytes that differ with place and seed.
std::vector<std::byte> pattern(size_t bytes, unsigned seed);
// All bytes of an open object, through the library. Empty where it fails.
std::vector<std::byte> copy_of(gshm_object* object);

// Names of the GPUs that this process sees: "cuda:0", ... Empty where there is no driver, and `why` says so.
std::vector<std::string> gpu_names(std::string* why = nullptr);
// The test double of tests/fakecuda instead of NVIDIA's: memory is counted otherwise there, and nothing computes.
bool is_fake_driver();

// A finding that is no matter of right or wrong; tests/gpu/run gathers these lines.
void print_fact(const std::string& text);

// A GPU through the bare driver, in its primary context, as a program would use it beside the library.
class Gpu {
public:
    // By the name the library has for it; aborts the program where it cannot be used.
    explicit Gpu(const std::string& name);

    uint64_t free_bytes() const;
    // Through a device pointer, with cuMemcpy. Not kSuccess: the driver's refusal.
    cuda::CUresult read(const void* pointer, std::vector<std::byte>& ret_bytes) const;
    cuda::CUresult write(void* pointer, const std::vector<std::byte>& bytes) const;
    // Adds 1 to each 32-bit number with a kernel. Empty: done; else why not ("skip: ..." where nothing can compute).
    std::string add_one(void* pointer, uint32_t count) const;
    // Puts a kernel on the stream that takes so long; returns like add_one().
    std::string spin(cuda::CUstream stream, std::chrono::nanoseconds duration) const;

    bool primary_context_is_active() const;
    std::string describe(cuda::CUresult result) const;
    const cuda::Driver& driver() const { return driver_; }
    cuda::CUdevice device() const { return device_; }
    cuda::CUcontext context() const;  // retained for good at the first use

private:
    std::string load_kernels(const char* code, void** ret_module) const;

    const cuda::Driver& driver_;
    cuda::CUdevice device_ = 0;
    mutable cuda::CUcontext context_ = nullptr;
};

// Driver calls that the product does not use. Null where the driver has none, as in the test double.
struct FurtherCalls {
    cuda::CUresult (*ctx_get_current)(cuda::CUcontext* context) = nullptr;
    cuda::CUresult (*ctx_create)(cuda::CUcontext* context, unsigned flags, cuda::CUdevice device) = nullptr;
    cuda::CUresult (*ctx_destroy)(cuda::CUcontext context) = nullptr;
    cuda::CUresult (*module_load_data)(void** module, const void* image) = nullptr;
    cuda::CUresult (*module_get_function)(void** function, void* module, const char* name) = nullptr;
    cuda::CUresult (*module_unload)(void* module) = nullptr;
    cuda::CUresult (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                    unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::CUstream stream,
                                    void** parameters, void** extra) = nullptr;
    cuda::CUresult (*mem_alloc)(cuda::CUdeviceptr* pointer, size_t bytes) = nullptr;
    cuda::CUresult (*mem_alloc_managed)(cuda::CUdeviceptr* pointer, size_t bytes, unsigned flags) = nullptr;
    cuda::CUresult (*mem_alloc_async)(cuda::CUdeviceptr* pointer, size_t bytes, cuda::CUstream stream) = nullptr;
    static const FurtherCalls& get();
};

}  // namespace gshm::core::test
