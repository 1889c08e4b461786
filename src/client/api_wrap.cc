// gshm.h: memory that the caller already has, waiting for its GPU work, and CUDA IPC handles.
#include "client/api.h"
#include "client/import.h"
#include "device/cuda.h"
#include "device/wrap.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

// The driver is used only if the process has already initialized it: wrapping host memory never starts CUDA.
Result<std::unique_ptr<gshm_object>> wrap(uint64_t address, uint64_t size_bytes) {
    auto object = std::make_unique<gshm_object>();
    object->size_bytes = size_bytes;
    if (auto pointer = CudaDevice::find(address)) {
        object->device = fmt::format("cuda:{}", pointer->ordinal);
        auto* device = dynamic_cast<CudaDevice*>(TRY(LocalDevices::instance().by_name(object->device)));
        object->own = TRY(device->wrap(address, size_bytes, pointer->owner));
        object->local = device;
        object->offset = address - object->own->address();
        object->access = Access::write;
        return object;
    }
    auto wrapped = TRY(wrap_host(address, size_bytes));
    object->device = "host";
    object->local = TRY(LocalDevices::instance().by_name("host"));
    object->own = std::move(wrapped.extent);
    object->access = wrapped.access;
    return object;
}

}  // namespace

extern "C" {

int gshm_wrap(void* memory, uint64_t size_bytes, gshm_object** ret_object) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(memory != nullptr && ret_object != nullptr, "memory or ret_object is NULL"));
        auto address = reinterpret_cast<uint64_t>(memory);
        if (size_bytes == 0 || size_bytes > limits::kObjectBytes || address > UINT64_MAX - size_bytes) {
            return fail(EINVAL, "{} bytes at {:#x} are not memory", size_bytes, address);
        }
        *ret_object = TRY(wrap(address, size_bytes)).release();
        return {};
    });
}

int gshm_sync(gshm_object* object) noexcept {
    return with_object(object, [](gshm_object& one) -> Status {
        // Without a mapping, this process cannot have work pending.
        return one.extent() != nullptr ? one.extent()->sync() : Status();
    });
}

int gshm_export_ipc(gshm_object* object, uint8_t ret_handle[GSHM_IPC_HANDLE_BYTES],
                    gshm_handle_info* ret_info) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_handle != nullptr, "ret_handle is NULL"));
        if (!one.own) return fail(EOPNOTSUPP, "gshmd's memory has no CUDA IPC handles: export a descriptor");
        auto exported = TRY(one.own->export_ipc());
        TRY(write_struct(ret_info, {sizeof(gshm_handle_info), GSHM_HANDLE_IPC, exported.allocation_bytes,
                                    exported.offset + one.offset, one.size_bytes}));
        memcpy(ret_handle, exported.handle.data(), exported.handle.size());
        return {};
    });
}

int gshm_import_ipc(const char* device, const uint8_t handle[GSHM_IPC_HANDLE_BYTES], const gshm_handle_info* info,
                    uint32_t flags, gshm_object** ret_object) noexcept {
    return import_object(device, info, flags, ret_object,
                         [&](Device& local, Access access, uint64_t extent_bytes) -> Result<std::unique_ptr<Extent>> {
                             TRY(check_argument(handle != nullptr, "handle is NULL"));
                             auto* gpu = dynamic_cast<CudaDevice*>(&local);
                             if (gpu == nullptr) return fail(EOPNOTSUPP, "{} has no IPC handles", local.info().name);
                             IpcHandle copy = {};
                             memcpy(copy.data(), handle, copy.size());
                             return gpu->import_ipc(copy, extent_bytes, access);
                         });
}

}  // extern "C"
