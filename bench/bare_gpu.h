// A GPU through the driver alone, as in a program without gshm: its primary context, current in this thread, and a
// stream.
#pragma once

#include "cuda/driver.h"
#include "support.h"

namespace gshm::core::bench {

class BareGpu {
public:
    // By the daemon's name for it.
    explicit BareGpu(const std::string& device) {
        auto driver = cuda::Driver::get();
        if (!driver) die(driver.error().message);
        driver_ = *driver;
        cuda::CUdevice number = 0;
        require("cuDeviceGet", driver_->device_get(&number, std::stoi(device.substr(device.find(':') + 1))));
        cuda::CUcontext context = nullptr;
        require("cuDevicePrimaryCtxRetain", driver_->primary_ctx_retain(&context, number));
        require("cuCtxPushCurrent", driver_->ctx_push(context));
        require("cuStreamCreate", driver_->stream_create(&stream_, cuda::kStreamNonBlocking));
    }
    void pin(void* memory, size_t bytes) {
        require("cuMemHostRegister", driver_->mem_host_register(memory, bytes, cuda::kMemHostRegisterPortable));
    }
    // They return when the copy is complete.
    void copy_out(void* to, const void* from, size_t bytes) {
        require("cuMemcpyDtoHAsync", driver_->memcpy_dtoh_async(to, address(from), bytes, stream_));
        synchronize();
    }
    void copy_in(void* to, const void* from, size_t bytes) {
        require("cuMemcpyHtoDAsync", driver_->memcpy_htod_async(address(to), from, bytes, stream_));
        synchronize();
    }
    void synchronize() { require("cuStreamSynchronize", driver_->stream_synchronize(stream_)); }
    cuda::CUstream stream() { return stream_; }

    void require(const char* what, cuda::CUresult result) {
        if (auto good = driver_->check(what, result); !good) die(good.error().message);
    }

private:
    static cuda::CUdeviceptr address(const void* pointer) { return reinterpret_cast<cuda::CUdeviceptr>(pointer); }

    const cuda::Driver* driver_ = nullptr;
    cuda::CUstream stream_ = nullptr;
};

}  // namespace gshm::core::bench
