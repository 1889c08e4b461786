// GPU memory through the driver's virtual memory management (VMM) calls.
#pragma once

#include <mutex>
#include <optional>

#include "cuda/driver.h"
#include "device/cuda_copier.h"
#include "device/fabric_maker.h"
#include "device/kinds.h"

namespace gshm::core {

extern const DeviceKind kCudaKind;

// The driver's information about an address of this process.
struct CudaPointer {
    int ordinal = 0;
    cuda::CUcontext owner = nullptr;  // null: no context (VMM memory, pools)
};

class CudaDevice final : public Device {
public:
    // Queries device `ordinal`. Makes no context: the first allocation or import retains the primary one.
    static Result<std::unique_ptr<CudaDevice>> create(int ordinal);
    static Result<int> count();
    // Empty: ordinary memory (also if pinned), or CUDA has not been started in this process; it is not started.
    static std::optional<CudaPointer> find(uint64_t address);
    ~CudaDevice() override;

    const DeviceInfo& info() const override { return info_; }
    Status start() override;
    Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) override;
    Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) override;
    Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                  Access access) override;
    Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                            const FabricHandle* handle) override;
    // Wraps any part of memory that the process owns. `owner` is its context; null: none (VMM memory, pools), and the
    // primary context is used. EINVAL if a part of the range is not mapped. The extent is extended to CPU page
    // boundaries, which dma-bufs need.
    Result<std::unique_ptr<Extent>> wrap(uint64_t address, uint64_t size_bytes, cuda::CUcontext owner);
    // Imports a whole allocation of another process by a CUDA IPC handle.
    Result<std::unique_ptr<Extent>> import_ipc(const IpcHandle& handle, uint64_t size_bytes, Access access);
    Status register_host_memory(std::span<std::byte> memory) override;
    void unregister_host_memory(std::span<std::byte> memory) override;
    Result<std::unique_ptr<Streams>> make_streams() override;
    void use_maker(std::shared_ptr<FabricMaker> maker) override { maker_ = std::move(maker); }
    uint64_t free_bytes() override;

    const cuda::Driver& driver() const { return driver_; }
    cuda::CUdevice device() const { return device_; }
    // The primary context, retained until the device object is destroyed.
    Result<cuda::CUcontext> context();
    // Valid while the device exists. Makes the context if there is none.
    Result<Copier*> copier();

private:
    CudaDevice(const cuda::Driver& driver, cuda::CUdevice device) : driver_(driver), device_(device) {}
    cuda::CUmemAllocationProp properties(bool compressible) const;
    void probe_handle_types();
    // Mapped memory; its contents are not changed.
    Result<std::unique_ptr<Extent>> make_here(uint64_t size_bytes, bool compressible);
    // The same by gshm-maker. ENOSPC: the GPU is full; any other error: gshm-maker is not available.
    Result<std::unique_ptr<Extent>> make_lasting(uint64_t size_bytes, bool compressible);
    Status check_import(cuda::CUresult result) const;
    Result<std::unique_ptr<Extent>> map_handle(cuda::CUmemGenericAllocationHandle handle, uint64_t size_bytes,
                                               Access access, bool imported, const FabricHandle* lasting = nullptr);
    Result<std::unique_ptr<Extent>> import(int fd, uint64_t size_bytes, Access access, const FabricHandle* lasting);

    const cuda::Driver& driver_;
    cuda::CUdevice device_;
    DeviceInfo info_;
    int handle_types_ = cuda::kMemHandleTypePosixFd;
    bool rdma_capable_ = false;
    std::mutex mutex_;  // guards context_
    cuda::CUcontext context_ = nullptr;
    std::shared_ptr<FabricMaker> maker_;
    std::shared_ptr<LazyCopier> copier_ = std::make_shared<LazyCopier>();
};

}  // namespace gshm::core
