// The kernels of kernels.cu on one GPU: loaded from the PTX inside this program, launched, waited for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda_driver.h"
#include "kernel_images.h"  // made by CMake: kKernelImages, the best first

class Kernels {
public:
    // Throws gshm::Exception if the driver takes none of the images.
    Kernels(const cuda::Driver& driver, cuda::CUdevice device) : driver_(driver), context_(driver, device) { load(); }
    ~Kernels() { driver_.module_unload(module_); }
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;

    // Where the PTX came from: "nvcc" or "kernels.ptx".
    const char* origin() const { return origin_; }

    // Writes the pattern. It is there when this returns.
    void fill(cuda::CUdeviceptr words, uint64_t count) const {
        void* parameters[] = {&words, &count};
        launch("fill_pattern", count, parameters);
        driver_.check("fill_pattern", driver_.stream_synchronize(nullptr));
    }
    // How many of the words are not as fill wrote them.
    uint64_t count_mismatches(cuda::CUdeviceptr words, uint64_t count) const {
        uint64_t mismatches = 0;
        Counter counter(driver_);
        void* parameters[] = {&words, &count, &counter.pointer};
        launch("check_pattern", count, parameters);
        driver_.check("cuMemcpyDtoH",
                      driver_.memcpy_dtoh_async(&mismatches, counter.pointer, sizeof mismatches, nullptr));
        driver_.check("check_pattern", driver_.stream_synchronize(nullptr));
        return mismatches;
    }

private:
    // Eight bytes of zero on the GPU.
    struct Counter {
        explicit Counter(const cuda::Driver& driver) : driver(driver) {
            driver.check("cuMemAlloc", driver.mem_alloc(&pointer, sizeof(uint64_t)));
            if (const auto result = driver.memset_d8_async(pointer, 0, sizeof(uint64_t), nullptr)) {
                driver.mem_free(pointer);
                driver.check("cuMemsetD8", result);
            }
        }
        ~Counter() { driver.mem_free(pointer); }
        Counter(const Counter&) = delete;
        Counter& operator=(const Counter&) = delete;

        const cuda::Driver& driver;
        cuda::CUdeviceptr pointer = 0;
    };

    // PTX of a toolkit that is newer than the driver is refused; kernels.ptx is old enough for all.
    void load() {
        std::string refusals;
        for (const auto& image : kKernelImages) {
            const auto result = driver_.module_load_data(&module_, image.ptx);
            if (result == cuda::kSuccess) {
                origin_ = image.origin;
                return;
            }
            refusals += std::string(refusals.empty() ? "" : "; ") + "PTX of " + image.origin + ": " +
                        driver_.describe("cuModuleLoadData", result);
        }
        throw gshm::Exception({EIO, refusals});
    }
    void launch(const char* name, uint64_t count, void** parameters) const {
        constexpr uint64_t kThreads = 256;
        constexpr uint64_t kMaxBlocks = 1024;  // the kernels stride over what is left
        cuda::CUfunction function = nullptr;
        driver_.check("cuModuleGetFunction", driver_.module_get_function(&function, module_, name));
        const auto blocks =
            static_cast<unsigned>(std::clamp<uint64_t>((count + kThreads - 1) / kThreads, 1, kMaxBlocks));
        driver_.check("cuLaunchKernel",
                      driver_.launch_kernel(function, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));
    }

    const cuda::Driver& driver_;
    const cuda::Context context_;
    cuda::CUmodule module_ = nullptr;
    const char* origin_ = "";
};
