// gshm.h: copies, exported handles, and memory without a daemon.
#include <cstring>

#include "base/limits.h"
#include "base/size.h"
#include "client/api.h"
#include "client/import.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

gshm_handle_info handle_info(const gshm_object& object, uint32_t kind, uint64_t extent_bytes, uint64_t offset) {
    return {sizeof(gshm_handle_info), kind, extent_bytes, offset, object.size_bytes};
}

struct Exported {
    UniqueFd descriptor;
    FabricHandle fabric = {};
    uint64_t extent_bytes = 0;
    uint64_t offset = 0;
};

Result<Exported> export_here(gshm_object& object, HandleKind kind) {
    Extent& extent = *object.extent();
    Exported exported;
    exported.extent_bytes = extent.size();
    exported.offset = object.offset;
    switch (kind) {
        case kHandlePosixFd: exported.descriptor = TRY(extent.export_fd(object.access)); break;
        case kHandleDmaBuf: exported.descriptor = TRY(extent.export_dmabuf()); break;
        case kHandleFabric: exported.fabric = TRY(extent.export_fabric()); break;
    }
    return exported;
}

Result<Exported> export_there(gshm_object& object, HandleKind kind) {
    auto answer = TRY(object.core->connection().call_on(
        object.key.epoch, wire::RequestBody::Export,
        [&](auto& builder) {
            return wire::CreateExport(builder, object.id, kind, object.access == Access::write).Union();
        },
        Lost::retry));
    const auto* body = GSHM_BODY(answer, ExportReply);
    Exported exported;
    exported.extent_bytes = body->extent_bytes();
    exported.offset = body->offset();
    if (kind == kHandleFabric) {
        auto bytes = wire::view(body->fabric());
        if (bytes.size() != exported.fabric.size()) return fail(EPROTO, "gshmd sent no fabric handle");
        memcpy(exported.fabric.data(), bytes.data(), bytes.size());
    } else {
        if (answer.descriptors.size() != 1) return fail(EPROTO, "gshmd sent no descriptor");
        exported.descriptor = std::move(answer.descriptors[0]);
    }
    return exported;
}

// The daemon exports its objects, and this process its own memory.
Result<Exported> export_object(gshm_object& object, HandleKind kind) {
    return object.core ? export_there(object, kind) : export_here(object, kind);
}

}  // namespace

extern "C" {

void* gshm_data(const gshm_object* object) noexcept {
    if (object == nullptr || object->extent() == nullptr) return nullptr;
    return reinterpret_cast<void*>(object->extent()->address() + object->offset);
}

uint64_t gshm_size(const gshm_object* object) noexcept {
    return object == nullptr ? 0 : object->size_bytes;
}

uint64_t gshm_id(const gshm_object* object) noexcept {
    return object == nullptr ? 0 : object->id;
}

const char* gshm_device(const gshm_object* object) noexcept {
    return object == nullptr ? "" : object->device.c_str();
}

int gshm_copy_in(gshm_object* object, uint64_t offset, const void* source, size_t bytes) noexcept {
    return with_object(object, [&](gshm_object& to) -> Status {
        TRY(check_argument(source != nullptr || bytes == 0, "source is NULL"));
        TRY(check_range(to, offset, bytes));
        TRY(check_writable(to));
        std::span<const std::byte> data(static_cast<const std::byte*>(source), bytes);
        if (to.extent() != nullptr) return to.extent()->copy_in(to.offset + offset, data);
        return to.core->copy_in(to.id, to.key.epoch, offset, data);
    });
}

int gshm_copy_out(gshm_object* object, uint64_t offset, void* destination, size_t bytes) noexcept {
    return with_object(object, [&](gshm_object& from) -> Status {
        TRY(check_argument(destination != nullptr || bytes == 0, "destination is NULL"));
        TRY(check_range(from, offset, bytes));
        std::span<std::byte> data(static_cast<std::byte*>(destination), bytes);
        if (from.extent() != nullptr) return from.extent()->copy_out(from.offset + offset, data);
        return from.core->copy_out(from.id, from.key.epoch, offset, data);
    });
}

int gshm_fill(gshm_object* object, uint64_t offset, uint64_t bytes, uint8_t value) noexcept {
    return with_object(object, [&](gshm_object& to) -> Status {
        TRY(check_range(to, offset, bytes));
        TRY(check_writable(to));
        if (to.extent() != nullptr) return to.extent()->fill(to.offset + offset, bytes, value);
        TRY(to.core->connection().call_on(
            to.key.epoch, wire::RequestBody::Fill,
            [&](auto& builder) { return wire::CreateFill(builder, to.id, offset, bytes, value).Union(); },
            Lost::retry));
        return {};
    });
}

int gshm_map_peer(gshm_object* object, const char* device) noexcept {
    return with_object(object, [&](gshm_object& mapped) -> Status {
        TRY(check_argument(device != nullptr, "device is NULL"));
        TRY(check_argument(mapped.extent() != nullptr, "the object was opened with GSHM_NO_MAP"));
        return mapped.extent()->map_peer(*TRY(LocalDevices::instance().by_name(device)));
    });
}

int gshm_export_fd(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_fd != nullptr, "ret_fd is NULL"));
        auto exported = TRY(export_object(one, kHandlePosixFd));
        TRY(write_struct(ret_info, handle_info(one, GSHM_HANDLE_POSIX_FD, exported.extent_bytes, exported.offset)));
        *ret_fd = exported.descriptor.take();
        return {};
    });
}

int gshm_export_dmabuf(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_fd != nullptr, "ret_fd is NULL"));
        auto exported = TRY(export_object(one, kHandleDmaBuf));
        TRY(write_struct(ret_info, handle_info(one, GSHM_HANDLE_DMABUF, exported.extent_bytes, exported.offset)));
        *ret_fd = exported.descriptor.take();
        return {};
    });
}

int gshm_export_fabric(gshm_object* object, uint8_t ret_handle[GSHM_FABRIC_HANDLE_BYTES],
                       gshm_handle_info* ret_info) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_handle != nullptr, "ret_handle is NULL"));
        auto exported = TRY(export_object(one, kHandleFabric));
        TRY(write_struct(ret_info, handle_info(one, GSHM_HANDLE_FABRIC, exported.extent_bytes, exported.offset)));
        memcpy(ret_handle, exported.fabric.data(), exported.fabric.size());
        return {};
    });
}

int gshm_allocate(const char* device, uint64_t size_bytes, uint32_t flags, gshm_object** ret_object) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(device != nullptr && ret_object != nullptr, "device or ret_object is NULL"));
        TRY(check_argument(size_bytes > 0, "memory must have at least one byte"));
        TRY(check_flags(flags, GSHM_ALLOCATE_COMPRESSIBLE, "allocate"));
        Device* local = TRY(LocalDevices::instance().by_name(device));
        if (size_bytes > limits::kObjectBytes || size_bytes > local->info().capacity_bytes) {
            return fail(ENOSPC, "{} bytes do not fit {}, which has {}", size_bytes, local->info().name,
                        local->info().capacity_bytes);
        }
        auto object = std::make_unique<gshm_object>();
        object->own = TRY(local->allocate(round_up(size_bytes, local->info().granularity_bytes),
                                          {.compressible = (flags & GSHM_ALLOCATE_COMPRESSIBLE) != 0}));
        object->local = local;
        object->access = Access::write;
        object->size_bytes = size_bytes;
        object->device = local->info().name;
        *ret_object = object.release();
        return {};
    });
}

int gshm_import_fd(const char* device, int fd, const gshm_handle_info* info, uint32_t flags,
                   gshm_object** ret_object) noexcept {
    return import_object(device, info, flags, ret_object,
                         [&](Device& local, Access access, uint64_t extent_bytes) -> Result<std::unique_ptr<Extent>> {
                             auto extent = local.import_fd(fd, extent_bytes, access);
                             if (extent) (*extent)->keep_descriptor(TRY(UniqueFd::clone(fd)));
                             return extent;
                         });
}

int gshm_import_dmabuf(const char* device, int fd, const gshm_handle_info* info, uint32_t flags,
                       gshm_object** ret_object) noexcept {
    return import_object(device, info, flags, ret_object, [&](Device& local, Access access, uint64_t extent_bytes) {
        return local.import_dmabuf(fd, extent_bytes, access);
    });
}

int gshm_import_fabric(const char* device, const uint8_t handle[GSHM_FABRIC_HANDLE_BYTES], const gshm_handle_info* info,
                       uint32_t flags, gshm_object** ret_object) noexcept {
    return import_object(device, info, flags, ret_object,
                         [&](Device& local, Access access, uint64_t extent_bytes) -> Result<std::unique_ptr<Extent>> {
                             TRY(check_argument(handle != nullptr, "handle is NULL"));
                             FabricHandle fabric = {};
                             memcpy(fabric.data(), handle, fabric.size());
                             return local.import_fabric(fabric, extent_bytes, access);
                         });
}

}  // extern "C"
