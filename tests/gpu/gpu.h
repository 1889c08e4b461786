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

// Null on failure; gshm_last_error() has the reason.
Client connect_to(const std::string& dir);
Object open_object(gshm_client* client, const std::string& name, uint32_t flags = 0);

// Bytes that depend on position and seed.
std::vector<std::byte> pattern(size_t bytes, unsigned seed);
// All bytes of an open object, through the library. Empty on failure.
std::vector<std::byte> copy_of(gshm_object* object);

// Names of the GPUs that this process sees: "cuda:0", ... Empty without a driver; `why` gets the reason.
std::vector<std::string> gpu_names(std::string* why = nullptr);
// The driver is the test double of tests/fakecuda: it counts memory differently and runs no kernels.
bool is_fake_driver();

// Prints an observation that is neither a success nor a failure; tests/gpu/run collects these lines.
void print_fact(const std::string& text);

// A GPU through the bare driver, in its primary context, as a program would use it beside the library.
class Gpu {
public:
    // By its name in the library. Aborts the program if it cannot be used.
    explicit Gpu(const std::string& name);

    uint64_t free_bytes() const;
    // Through a device pointer, with cuMemcpy. Not kSuccess: the driver's refusal.
    cuda::CUresult read(const void* pointer, std::vector<std::byte>& ret_bytes) const;
    cuda::CUresult write(void* pointer, const std::vector<std::byte>& bytes) const;
    // Adds 1 to each 32-bit number with a kernel. Returns "", or the reason of a failure ("skip: ...": no kernels can
    // run).
    std::string add_one(void* pointer, uint32_t count) const;
    // Queues a kernel with this duration on the stream; returns like add_one().
    std::string spin(cuda::CUstream stream, std::chrono::nanoseconds duration) const;

    bool primary_context_is_active() const;
    std::string describe(cuda::CUresult result) const;
    const cuda::Driver& driver() const { return driver_; }
    cuda::CUdevice device() const { return device_; }
    cuda::CUcontext context() const;  // retained at the first use, never released

private:
    std::string load_kernels(const char* code, void** ret_module) const;

    const cuda::Driver& driver_;
    cuda::CUdevice device_ = 0;
    mutable cuda::CUcontext context_ = nullptr;
};

// Driver calls that the product does not use. Null if the driver does not have them, like the test double.
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
