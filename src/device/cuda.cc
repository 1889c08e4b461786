#include "device/cuda.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <unistd.h>

#include "base/size.h"
#include "device/mapped_handle.h"

namespace gshm::core {
namespace {

using cuda::CUdeviceptr;
using cuda::CUmemGenericAllocationHandle;
using cuda::Driver;

// Common base of VMM and external (dma-buf) memory: an address for driver copies.
class CudaExtent : public Extent {
public:
    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        TRY(begin_copy_in(offset, source, nullptr));
        return finish(nullptr);
    }
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        TRY(begin_copy_out(offset, destination, nullptr));
        return finish(nullptr);
    }
    Status begin_copy_in(uint64_t offset, std::span<const std::byte> source, void* stream) override {
        TRY(check_range(offset, source.size()));
        TRY(check_writable());
        return in_context("cuMemcpyHtoD", [&] {
            return driver_.memcpy_htod_async(address() + offset, source.data(), source.size(), as_stream(stream));
        });
    }
    Status begin_copy_out(uint64_t offset, std::span<std::byte> destination, void* stream) const override {
        TRY(check_range(offset, destination.size()));
        return in_context("cuMemcpyDtoH", [&] {
            return driver_.memcpy_dtoh_async(destination.data(), address() + offset, destination.size(),
                                             as_stream(stream));
        });
    }
    Status finish(void* stream) const override {
        return in_context("cuStreamSynchronize", [&] { return driver_.stream_synchronize(as_stream(stream)); });
    }
    bool is_host_memory() const override { return false; }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        TRY(check_range(offset, bytes));
        TRY(check_writable());
        return on_device("cuMemsetD8",
                         [&] { return driver_.memset_d8_async(address() + offset, value, bytes, nullptr); });
    }
    Status copy_from(uint64_t offset, const Extent& source, uint64_t source_offset, uint64_t bytes) override {
        const auto* other = dynamic_cast<const CudaExtent*>(&source);
        if (other == nullptr || other->context_ != context_) {
            return Extent::copy_from(offset, source, source_offset, bytes);
        }
        TRY(check_range(offset, bytes));
        TRY(other->check_range(source_offset, bytes));
        TRY(check_writable());
        return on_device("cuMemcpyDtoD", [&] {
            return driver_.memcpy_dtod_async(address() + offset, other->address() + source_offset, bytes, nullptr);
        });
    }
    Copier* copier() override { return copier_->get(driver_, context_); }
    Result<UniqueFd> export_dmabuf() const override {
        if (driver_.mem_get_range_handle == nullptr) return fail(EOPNOTSUPP, "this CUDA driver has no dma-buf export");
        cuda::ScopedContext current(driver_, context_);
        TRY(current.status());
        int fd = -1;
        TRY(driver_.check("cuMemGetHandleForAddressRange",
                          driver_.mem_get_range_handle(&fd, address(), size(), cuda::kMemRangeHandleTypeDmaBufFd, 0)));
        return UniqueFd::adopt(fd);
    }
    // Waits for one stream, not the device: other streams and contexts are not affected.
    Status sync() const override {
        cuda::ScopedContext current(driver_, context_);
        TRY(current.status());
        auto* legacy = reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy);
        // An event on that stream follows earlier work of the streams that synchronise with it, even if the stream
        // itself is idle.
        cuda::CUevent event = nullptr;
        TRY(driver_.check("cuEventCreate", driver_.event_create(&event, cuda::kEventDisableTiming)));
        auto result = driver_.event_record(event, legacy);
        if (result == cuda::kSuccess) result = driver_.event_synchronize(event);
        driver_.event_destroy(event);
        return driver_.check("waiting for the default stream", result);
    }

protected:
    CudaExtent(const Driver& driver, cuda::CUcontext context, std::shared_ptr<LazyCopier> copier, uint64_t address,
               uint64_t size, Access access)
        : Extent(address, size), driver_(driver), context_(context), access_(access), copier_(std::move(copier)) {}

    // Null is the legacy default stream: ordered after kernels that the caller has launched, as cudaMemcpy is.
    static cuda::CUstream as_stream(void* stream) { return static_cast<cuda::CUstream>(stream); }
    template <typename Call>
    Status in_context(const char* what, Call&& call) const {
        cuda::ScopedContext current(driver_, context_);
        TRY(current.status());
        return driver_.check(what, call());
    }
    template <typename Call>
    Status on_device(const char* what, Call&& call) const {
        TRY(in_context(what, call));
        return finish(nullptr);
    }
    Status check_writable() const {
        if (access_ == Access::read) return fail(EACCES, "this memory was opened for reading only");
        return {};
    }

    const Driver& driver_;
    cuda::CUcontext context_;
    Access access_;

private:
    std::shared_ptr<LazyCopier> copier_;
};

class VmmExtent final : public CudaExtent {
public:
    VmmExtent(const Driver& driver, cuda::CUdevice device, cuda::CUcontext context, std::shared_ptr<LazyCopier> copier,
              std::unique_ptr<MappedHandle> memory, uint64_t size, Access access, bool imported)
        : CudaExtent(driver, context, std::move(copier), memory->pointer(), size, access),
          memory_(std::move(memory)),
          device_(device),
          imported_(imported) {}
    // gshm-maker allocated the memory and frees it with the extent.
    void set_lasting_handle(std::shared_ptr<FabricMaker> maker, const FabricHandle& handle) {
        maker_ = std::move(maker);
        lasting_ = handle;
        on_release([maker = maker_, handle] { maker->release(handle); });
    }

    Result<int> descriptor(Access) override {
        if (imported_) return kept_descriptor();
        if (!fd_) {
            int fd = -1;
            TRY(driver_.check("cuMemExportToShareableHandle",
                              driver_.mem_export(&fd, memory_->handle(), cuda::kMemHandleTypePosixFd, 0)));
            fd_ = UniqueFd::adopt(fd);
        }
        return fd_.get();
    }
    const FabricHandle* lasting_handle() const override { return maker_ ? &lasting_ : nullptr; }
    bool has_fabric_handle() const override { return maker_ ? maker_->holds(lasting_) : !imported_; }
    Result<FabricHandle> export_fabric() const override {
        if (!has_fabric_handle()) {
            return fail(
                EBUSY, "no fabric handle: the process that made this memory has ended, and its handles with it. "
                       "Processes that import by handle need a copy, which has a handle of its own (`cp` in the mount, "
                       "`gshm put --replace`)");
        }
        if (maker_) return lasting_;
        FabricHandle handle = {};
        auto result = driver_.mem_export(handle.data(), memory_->handle(), cuda::kMemHandleTypeFabric, 0);
        if (result != cuda::kSuccess) {
            auto error = driver_.failure("cuMemExportToShareableHandle", result).error();
            return fail(EOPNOTSUPP,
                        "no fabric handle: {}. It needs /dev/nvidia-caps-imex-channels/channel0 when gshmd starts",
                        error.message);
        }
        return handle;
    }
    Status map_peer(Device& peer) override {
        auto* gpu = dynamic_cast<CudaDevice*>(&peer);
        if (gpu == nullptr) return Extent::map_peer(peer);
        if (gpu->device() == device_) return {};
        int can = 0;
        TRY(driver_.check("cuDeviceCanAccessPeer", driver_.device_can_access_peer(&can, gpu->device(), device_)));
        if (can == 0) return fail(EOPNOTSUPP, "{} cannot reach the memory of this GPU", gpu->info().name);
        TRY(gpu->context());
        return memory_->set_access(gpu->device(),
                                   access_ == Access::write ? cuda::kMemAccessProtReadWrite : cuda::kMemAccessProtRead);
    }

private:
    std::unique_ptr<MappedHandle> memory_;
    cuda::CUdevice device_;
    bool imported_;
    UniqueFd fd_;
    std::shared_ptr<FabricMaker> maker_;  // null: not allocated by gshm-maker
    FabricHandle lasting_ = {};           // with maker_
};

class ExternalExtent final : public CudaExtent {
public:
    ExternalExtent(const Driver& driver, cuda::CUcontext context, std::shared_ptr<LazyCopier> copier,
                   cuda::CUexternalMemory memory, CUdeviceptr pointer, uint64_t size, Access access)
        : CudaExtent(driver, context, std::move(copier), pointer, size, access), memory_(memory) {}
    ~ExternalExtent() override {
        cuda::ScopedContext current(driver_, context_);
        driver_.mem_free(address());
        driver_.destroy_external_memory(memory_);
    }
    Result<int> descriptor(Access) override {
        return fail(EOPNOTSUPP, "memory imported from a dma-buf can only be exported as one");
    }

private:
    cuda::CUexternalMemory memory_;
};

// Does not own the memory.
class WrappedExtent final : public CudaExtent {
public:
    WrappedExtent(const Driver& driver, cuda::CUcontext context, std::shared_ptr<LazyCopier> copier, uint64_t address,
                  uint64_t size)
        : CudaExtent(driver, context, std::move(copier), address, size, Access::write) {}

    Result<int> descriptor(Access) override {
        return fail(EOPNOTSUPP, "memory that gshm has not allocated cannot be exported as a descriptor");
    }
    Result<IpcExport> export_ipc() const override {
        cuda::ScopedContext current(driver_, context_);
        TRY(current.status());
        CUdeviceptr base = 0;
        size_t bytes = 0;
        TRY(driver_.check("cuMemGetAddressRange", driver_.mem_get_address_range(&base, &bytes, address())));
        cuda::CUipcMemHandle handle = {};
        IpcExport made{.allocation_bytes = bytes, .offset = address() - base};
        auto result = driver_.ipc_get_mem_handle(&handle, base);
        if (result == cuda::kErrorInvalidValue || size() > bytes - made.offset) return Extent::export_ipc();
        TRY(driver_.check("cuIpcGetMemHandle", result));
        memcpy(made.handle.data(), handle.reserved, sizeof handle.reserved);
        return made;
    }
};

// A whole allocation of another process. The driver counts the opens of a handle.
class IpcExtent final : public CudaExtent {
public:
    IpcExtent(const Driver& driver, cuda::CUcontext context, std::shared_ptr<LazyCopier> copier, CUdeviceptr pointer,
              uint64_t size, Access access)
        : CudaExtent(driver, context, std::move(copier), pointer, size, access) {}
    ~IpcExtent() override {
        cuda::ScopedContext current(driver_, context_);
        driver_.ipc_close_mem_handle(address());
    }
    Result<int> descriptor(Access) override {
        return fail(EOPNOTSUPP, "memory that was imported by a CUDA IPC handle cannot be exported again");
    }
};

std::string format_uuid(const cuda::CUuuid& uuid, const std::string& model) {
    std::string text = model.find("MIG") == std::string::npos ? "GPU-" : "MIG-";
    for (int i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
}

std::string pci_bus_id(const Driver& driver, cuda::CUdevice device) {
    char text[32] = {};
    if (driver.device_get_pci_bus_id == nullptr) return {};
    if (driver.device_get_pci_bus_id(text, sizeof text, device) != cuda::kSuccess) return {};
    for (char& digit : text) digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
    return text;
}

// The kernel reports -1 if the firmware does not tell.
int numa_node(const std::string& pci_bus_id) {
    int node = -1;
    std::ifstream file("/sys/bus/pci/devices/" + pci_bus_id + "/numa_node");
    return file >> node ? node : -1;
}

}  // namespace

Result<int> CudaDevice::count() {
    const Driver* driver = TRY(Driver::get());
    int count = 0;
    TRY(driver->check("cuDeviceGetCount", driver->device_get_count(&count)));
    return count;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(int ordinal) {
    const Driver& driver = *TRY(Driver::get());
    cuda::CUdevice device = 0;
    if (driver.device_get(&device, ordinal) != cuda::kSuccess) {
        return fail(ENODEV, "there is no device cuda:{} here", ordinal);
    }
    std::unique_ptr<CudaDevice> made(new CudaDevice(driver, device));
    char model[96] = {};
    cuda::CUuuid uuid = {};
    size_t capacity = 0;
    TRY(driver.check("cuDeviceGetName", driver.device_get_name(model, sizeof model, device)));
    TRY(driver.check("cuDeviceGetUuid", driver.device_get_uuid(&uuid, device)));
    TRY(driver.check("cuDeviceTotalMem", driver.device_total_mem(&capacity, device)));
    auto has = [&](int attribute) {
        int value = 0;
        return driver.device_get_attribute(&value, attribute, device) == cuda::kSuccess && value != 0;
    };
    if (!has(cuda::kAttributeVmmSupported) || !has(cuda::kAttributePosixFdSupported)) {
        return fail(EOPNOTSUPP, "cuda:{} ({}) has no virtual memory management with descriptors", ordinal, model);
    }
    made->rdma_capable_ = has(cuda::kAttributeGpuDirectRdmaWithVmm);
    if (has(cuda::kAttributeFabricSupported)) made->handle_types_ |= cuda::kMemHandleTypeFabric;
    made->probe_handle_types();
    size_t granularity = 0;
    auto properties = made->properties(false);
    TRY(driver.check("cuMemGetAllocationGranularity",
                     driver.mem_granularity(&granularity, &properties, cuda::kMemGranularityMinimum)));
    uint32_t kinds = kHandlePosixFd;
    if ((made->handle_types_ & cuda::kMemHandleTypeFabric) != 0) kinds |= kHandleFabric;
    if (has(cuda::kAttributeDmaBufSupported) && driver.mem_get_range_handle != nullptr) kinds |= kHandleDmaBuf;
    made->info_ = DeviceInfo{
        .name = fmt::format("cuda:{}", ordinal),
        .uuid = format_uuid(uuid, model),
        .model = model,
        .capacity_bytes = capacity,
        .granularity_bytes = granularity,
        .handle_kinds = kinds,
        .compressible = has(cuda::kAttributeGenericCompression),
        .pci_bus_id = pci_bus_id(driver, device),
        .pins = true,
        .streams = true,
        .knows_free_bytes = true,
    };
    made->info_.numa_node = numa_node(made->info_.pci_bus_id);
    return made;
}

CudaDevice::~CudaDevice() {
    copier_->close();
    if (context_ != nullptr) driver_.primary_ctx_release(device_);
}

Status CudaDevice::start() {
    TRY(context());
    return {};
}

Result<cuda::CUcontext> CudaDevice::context() {
    std::lock_guard lock(mutex_);
    if (context_ == nullptr) {
        TRY(driver_.check("cuDevicePrimaryCtxRetain", driver_.primary_ctx_retain(&context_, device_)));
    }
    return context_;
}

Result<Copier*> CudaDevice::copier() {
    auto* owner = TRY(context());
    return copier_->get(driver_, owner);
}

cuda::CUmemAllocationProp CudaDevice::properties(bool compressible) const {
    cuda::CUmemAllocationProp properties = {};
    properties.type = cuda::kMemAllocationTypePinned;
    properties.requestedHandleTypes = handle_types_;
    properties.location = {cuda::kMemLocationTypeDevice, device_};
    properties.allocFlags.gpuDirectRDMACapable = rdma_capable_ ? 1 : 0;
    properties.allocFlags.compressionType = compressible ? cuda::kMemCompressionGeneric : 0;
    return properties;
}

// The attributes describe the GPU, not the rights of this process: the driver refuses fabric handles without an IMEX
// channel. Tries all types and falls back silently.
void CudaDevice::probe_handle_types() {
    for (;;) {
        auto wanted = properties(false);
        size_t granularity = 0;
        CUmemGenericAllocationHandle handle = 0;
        if (driver_.mem_granularity(&granularity, &wanted, cuda::kMemGranularityMinimum) == cuda::kSuccess) {
            auto result = driver_.mem_create(&handle, granularity, &wanted, 0);
            if (result == cuda::kSuccess) {
                driver_.mem_release(handle);
                return;
            }
            if (result == cuda::kErrorOutOfMemory) return;  // a full GPU tells nothing about handle types
        }
        if ((handle_types_ & cuda::kMemHandleTypeFabric) != 0) handle_types_ &= ~cuda::kMemHandleTypeFabric;
        else if (rdma_capable_) rdma_capable_ = false;
        else return;
    }
}

Result<std::unique_ptr<Extent>> CudaDevice::map_handle(CUmemGenericAllocationHandle handle, uint64_t size_bytes,
                                                       Access access, bool imported, const FabricHandle* lasting) {
    auto memory = std::make_unique<MappedHandle>(driver_, handle);
    auto* current = TRY(context());
    TRY(memory->map(size_bytes));
    bool read_only = access == Access::read && memory->set_access(device_, cuda::kMemAccessProtRead).has_value();
    if (!read_only) TRY(memory->set_access(device_, cuda::kMemAccessProtReadWrite));
    auto extent = std::make_unique<VmmExtent>(driver_, device_, current, copier_, std::move(memory), size_bytes, access,
                                              imported);
    if (lasting != nullptr) extent->set_lasting_handle(maker_, *lasting);
    return extent;
}

Result<std::unique_ptr<Extent>> CudaDevice::make_here(uint64_t size_bytes, bool compressible) {
    auto wanted = properties(compressible);
    CUmemGenericAllocationHandle handle = 0;
    TRY(driver_.check("cuMemCreate", driver_.mem_create(&handle, size_bytes, &wanted, 0)));
    return map_handle(handle, size_bytes, Access::write, false);
}

Result<std::unique_ptr<Extent>> CudaDevice::make_lasting(uint64_t size_bytes, bool compressible) {
    FabricMaker::Wanted wanted{{}, size_bytes, handle_types_, compressible, rdma_capable_};
    TRY(driver_.check("cuDeviceGetUuid", driver_.device_get_uuid(&wanted.device, device_)));
    auto made = TRY(maker_->make(wanted));
    TRY(driver_.check("cuMemCreate in gshm-maker", made.result));
    auto extent = import(made.fd.get(), size_bytes, Access::write, &made.handle);
    if (!extent) maker_->release(made.handle);
    else (*extent)->keep_descriptor(std::move(made.fd));
    return extent;
}

Result<std::unique_ptr<Extent>> CudaDevice::allocate(uint64_t size_bytes, const AllocateOptions& options) {
    if (options.compressible && !info_.compressible) {
        return fail(EOPNOTSUPP, "{} has no compressible memory", info_.name);
    }
    auto* owner = TRY(context());
    Result<std::unique_ptr<Extent>> made = nullptr;
    const bool lasting = options.lasting_handle && maker_ && (handle_types_ & cuda::kMemHandleTypeFabric) != 0;
    if (lasting) made = make_lasting(size_bytes, options.compressible);
    // If gshm-maker fails for another reason than a full GPU, memory without a lasting handle is used.
    const bool full = !made && made.error().code == ENOSPC;
    if (!lasting || (!made && !full)) made = make_here(size_bytes, options.compressible);
    auto extent = TRY(std::move(made));
    // The memory may contain data of its previous owner.
    cuda::ScopedContext current(driver_, owner);
    TRY(current.status());
    TRY(driver_.check("cuMemsetD8", driver_.memset_d8_async(extent->address(), 0, size_bytes, nullptr)));
    // Exports while the memory is being zeroed, since both take long. A failure is reported to the caller of
    // descriptor().
    if (options.shared) (void)extent->descriptor(Access::write);
    TRY(extent->finish(nullptr));
    return extent;
}

uint64_t CudaDevice::free_bytes() {
    auto owner = context();
    if (!owner) return UINT64_MAX;
    cuda::ScopedContext current(driver_, *owner);
    size_t free = 0;
    size_t total = 0;
    const bool known = current.status() && driver_.mem_get_info(&free, &total) == cuda::kSuccess;
    return known ? free : UINT64_MAX;
}

Status CudaDevice::register_host_memory(std::span<std::byte> memory) {
    auto* owner = TRY(context());
    cuda::ScopedContext current(driver_, owner);
    TRY(current.status());
    // Portable: pinned for every GPU of this process.
    return driver_.check("cuMemHostRegister",
                         driver_.mem_host_register(memory.data(), memory.size(),
                                                   cuda::kMemHostRegisterPortable | cuda::kMemHostRegisterDeviceMap));
}

void CudaDevice::unregister_host_memory(std::span<std::byte> memory) {
    auto owner = context();
    if (!owner) return;
    cuda::ScopedContext current(driver_, *owner);
    driver_.mem_host_unregister(memory.data());
}

// CUDA_ERROR_UNKNOWN is the driver's reply to a foreign handle; it does not concern the GPU.
Status CudaDevice::check_import(cuda::CUresult result) const {
    auto status = driver_.check("cuMemImportFromShareableHandle", result);
    if (!status && result == cuda::kErrorUnknown) status.error() = {EINVAL, status.error().message};
    return status;
}

Result<std::unique_ptr<Extent>> CudaDevice::import(int fd, uint64_t size_bytes, Access access,
                                                   const FabricHandle* lasting) {
    TRY(context());
    CUmemGenericAllocationHandle handle = 0;
    void* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    TRY(check_import(driver_.mem_import(&handle, shareable, cuda::kMemHandleTypePosixFd)));
    return map_handle(handle, size_bytes, access, true, lasting);
}

Result<std::unique_ptr<Extent>> CudaDevice::import_fd(int fd, uint64_t size_bytes, Access access) {
    return import(fd, size_bytes, access, nullptr);
}

Result<std::unique_ptr<Extent>> CudaDevice::restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions&,
                                                    const FabricHandle* handle) {
    const bool lasts = handle != nullptr && maker_ && maker_->holds(*handle);
    auto extent = TRY(import(fd.get(), size_bytes, Access::write, lasts ? handle : nullptr));
    extent->keep_descriptor(std::move(fd));
    return extent;
}

Result<std::unique_ptr<Extent>> CudaDevice::import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                          Access access) {
    TRY(context());
    FabricHandle copy = handle;  // the driver's signature is not const
    CUmemGenericAllocationHandle imported = 0;
    TRY(check_import(driver_.mem_import(&imported, copy.data(), cuda::kMemHandleTypeFabric)));
    return map_handle(imported, size_bytes, access, true);
}

Result<std::unique_ptr<Extent>> CudaDevice::import_dmabuf(int fd, uint64_t size_bytes, Access access) {
    if (driver_.import_external_memory == nullptr) return fail(EOPNOTSUPP, "this CUDA driver imports no dma-bufs");
    auto* owner = TRY(context());
    cuda::ScopedContext current(driver_, owner);
    TRY(current.status());
    auto copy = TRY(UniqueFd::clone(fd));  // the driver takes ownership on success
    cuda::CUexternalMemoryHandleDesc source = {};
    source.type = cuda::kExternalMemoryDmaBufFd;
    source.handle.fd = copy.get();
    source.size = size_bytes;
    cuda::CUexternalMemory memory = nullptr;
    TRY(driver_.check("cuImportExternalMemory", driver_.import_external_memory(&memory, &source)));
    (void)copy.take();
    cuda::CUexternalMemoryBufferDesc range = {};
    range.size = size_bytes;
    CUdeviceptr pointer = 0;
    if (auto result = driver_.external_memory_map(&pointer, memory, &range); result != cuda::kSuccess) {
        driver_.destroy_external_memory(memory);
        return driver_.failure("cuExternalMemoryGetMappedBuffer", result);
    }
    return std::make_unique<ExternalExtent>(driver_, owner, copier_, memory, pointer, size_bytes, access);
}

std::optional<CudaPointer> CudaDevice::find(uint64_t address) {
    const Driver* driver = Driver::started();
    if (driver == nullptr || driver->pointer_get_attributes == nullptr) return std::nullopt;
    unsigned type = 0;
    CudaPointer found{.ordinal = -1};
    int asked[] = {cuda::kPointerMemoryType, cuda::kPointerDeviceOrdinal, cuda::kPointerContext};
    void* values[] = {&type, &found.ordinal, &found.owner};
    // For an unknown address the driver returns success without values.
    if (driver->pointer_get_attributes(std::size(asked), asked, values, address) != cuda::kSuccess) return std::nullopt;
    if (type != cuda::kMemoryTypeDevice || found.ordinal < 0) return std::nullopt;
    return found;
}

Result<std::unique_ptr<Extent>> CudaDevice::wrap(uint64_t address, uint64_t size_bytes, cuda::CUcontext owner) {
    auto* primary = TRY(context());
    if (owner == nullptr) owner = primary;
    cuda::ScopedContext current(driver_, owner);
    TRY(current.status());
    // Checks one allocation after the other: a framework's segment may consist of several, mapped side by side.
    uint64_t begin = 0;
    uint64_t end = 0;
    for (uint64_t at = address; at - address < size_bytes; at = end) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        if (driver_.mem_get_address_range(&base, &bytes, at) != cuda::kSuccess || base + bytes <= at) {
            return fail(EINVAL, "{} of the {} bytes at {:#x} are on {}, the rest is not mapped", at - address,
                        size_bytes, address, info_.name);
        }
        if (at == address) begin = base;
        end = base + bytes;
    }
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    begin = std::max(begin, address / page * page);
    end = std::min(end, round_up(address + size_bytes, page));
    // Memory of a context of the program is copied in that context, and only while it is known to exist.
    auto copier = owner == primary ? copier_ : std::make_shared<LazyCopier>();
    return std::make_unique<WrappedExtent>(driver_, owner, std::move(copier), begin, end - begin);
}

Result<std::unique_ptr<Extent>> CudaDevice::import_ipc(const IpcHandle& handle, uint64_t size_bytes, Access access) {
    auto* owner = TRY(context());
    cuda::ScopedContext current(driver_, owner);
    TRY(current.status());
    cuda::CUipcMemHandle copy = {};
    memcpy(copy.reserved, handle.data(), handle.size());
    CUdeviceptr pointer = 0;
    auto result = driver_.ipc_open_mem_handle(&pointer, copy, cuda::kIpcLazyEnablePeerAccess);
    if (result == cuda::kErrorInvalidContext) {
        return fail(EINVAL, "a CUDA IPC handle cannot be opened in the process that exported it");
    }
    TRY(driver_.check("cuIpcOpenMemHandle", result));
    auto extent = std::make_unique<IpcExtent>(driver_, owner, copier_, pointer, size_bytes, access);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (driver_.mem_get_address_range(&base, &bytes, pointer) == cuda::kSuccess &&
        base + bytes - pointer < size_bytes) {
        return fail(EINVAL, "the CUDA IPC handle refers to {} bytes, not to {}", base + bytes - pointer, size_bytes);
    }
    return extent;
}

}  // namespace gshm::core
