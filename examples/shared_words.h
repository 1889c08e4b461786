// The memory behind a mounted file as an array of 32-bit words, by the first of these methods that works:
//   1. the fabric handle, imported and mapped with driver calls; kernels on the GPU
//   2. libgshm's mapping, found by the path alone;               kernels on the GPU
//   3. libgshm, for host memory or without CUDA in this process; the CPU
// Each failing method reports its reason on standard output.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_driver.h"
#include "fabric_memory.h"
#include "kernels.h"
#include "mounted_file.h"
#include "pattern.h"
#include <gshm/gshm.hpp>

class SharedWords {
public:
    // Throws gshm::Exception if no method works.
    SharedWords(const MountedFile& file, bool write) : count_(file.size() / sizeof(uint32_t)) {
        const uint64_t allocation_bytes = file.allocation_size();
        const std::string device = file.device();
        std::printf("%s: %llu bytes, allocation of %llu bytes on %s\n", file.path().c_str(),
                    static_cast<unsigned long long>(file.size()), static_cast<unsigned long long>(allocation_bytes),
                    device.c_str());
        open(file, device, allocation_bytes, write);
    }
    SharedWords(const SharedWords&) = delete;
    SharedWords& operator=(const SharedWords&) = delete;

    uint64_t count() const { return count_; }
    const char* worker() const { return kernels_ ? "a kernel" : "the CPU"; }

    // Writes the pattern; complete on return.
    void fill() {
        if (kernels_) return kernels_->fill(pointer_, count_);
        for_chunks([&](std::vector<uint32_t>& chunk, uint64_t first) {
            for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = pattern_at(first + i);
            object_.copy_in(chunk, first * sizeof(uint32_t)).value();
        });
    }
    uint64_t count_mismatches() {
        if (kernels_) return kernels_->count_mismatches(pointer_, count_);
        uint64_t mismatches = 0;
        for_chunks([&](std::vector<uint32_t>& chunk, uint64_t first) {
            object_.copy_out(chunk, first * sizeof(uint32_t)).value();
            for (size_t i = 0; i < chunk.size(); ++i) mismatches += chunk[i] != pattern_at(first + i);
        });
        return mismatches;
    }

private:
    void open(const MountedFile& file, const std::string& device, uint64_t allocation_bytes, bool write) {
        if (device == "host") {
            std::printf("Host memory has no fabric handle and needs no GPU: using libgshm and the CPU\n");
            return open_by_library(file, write, true);
        }
        if (!start_cuda()) return open_by_library(file, write, false);
        if (map_fabric_handle(file, allocation_bytes, write)) return start_kernels(fabric_->device());
        open_by_library(file, write, true);
        start_kernels(device_of(pointer_));
    }

    bool start_cuda() {
        auto loaded = cuda::Driver::load();
        if (!loaded) {
            std::printf("No CUDA in this process (%s): using libgshm and copies through the daemon\n",
                        loaded.error().message.c_str());
            return false;
        }
        driver_ = std::make_unique<const cuda::Driver>(std::move(*loaded));
        return true;
    }

    bool map_fabric_handle(const MountedFile& file, uint64_t allocation_bytes, bool write) {
        const auto handle = file.fabric_handle();
        if (!handle) {
            std::printf("No fabric handle (%s): using libgshm instead\n", handle.error().message.c_str());
            return false;
        }
        std::printf("Read the fabric handle: %zu bytes\n", handle->size());
        try {
            fabric_.emplace(*driver_, *handle, allocation_bytes, write);
        } catch (const gshm::Exception& exception) {
            std::printf("The fabric handle cannot be used here (%s): using libgshm instead\n", exception.what());
            return false;
        }
        pointer_ = fabric_->pointer();
        std::printf("Imported the fabric handle and mapped it at 0x%llx\n", pointer_);
        return true;
    }

    void open_by_library(const MountedFile& file, bool write, bool map) {
        const uint32_t flags = (write ? uint32_t{GSHM_WRITE} : 0) | (map ? 0 : uint32_t{GSHM_NO_MAP});
        gshm_object* object = nullptr;
        if (const int status = gshm_open_path(nullptr, file.path().c_str(), flags, &object); status != 0)
            fail(-status, "gshm_open_path: " + std::string(gshm_last_error()));
        object_ = gshm::Object::adopt(object);
        if (object_.size() < count_ * sizeof(uint32_t)) fail(EPROTO, "the object is smaller than its file");
        pointer_ = reinterpret_cast<uintptr_t>(object_.data());
        if (map) std::printf("Opened %s with libgshm, mapped at %p\n", file.path().c_str(), object_.data());
    }

    // The GPU's ordinal in this process; that of the daemon may differ.
    cuda::CUdevice device_of(cuda::CUdeviceptr pointer) const {
        cuda::CUdevice device = 0;
        driver_->check("cuPointerGetAttribute",
                       driver_->pointer_get_attribute(&device, cuda::kPointerAttributeDeviceOrdinal, pointer));
        return device;
    }
    void start_kernels(cuda::CUdevice device) {
        kernels_.emplace(*driver_, device);
        std::printf("Loaded the kernels on GPU %d (PTX of %s)\n", device, kernels_->origin());
    }

    template <class Function>
    void for_chunks(Function&& function) const {
        constexpr uint64_t kChunk = 1 << 20;
        std::vector<uint32_t> chunk;
        for (uint64_t first = 0; first < count_; first += kChunk) {
            chunk.resize(std::min(kChunk, count_ - first));
            function(chunk, first);
        }
    }

    const uint64_t count_;
    std::unique_ptr<const cuda::Driver> driver_;
    // One of these two has the memory; kernels_ is destroyed first.
    std::optional<FabricMemory> fabric_;
    gshm::Object object_;
    cuda::CUdeviceptr pointer_ = 0;
    std::optional<Kernels> kernels_;
};
