// Helpers of the import functions of gshm.h.
#pragma once

#include "client/api.h"

namespace gshm::core::client {

inline Status check_place(const gshm_handle_info& info) {
    if (info.extent_bytes == 0 || info.extent_bytes > limits::kObjectBytes) {
        return fail(EINVAL, "an extent of {} bytes", info.extent_bytes);
    }
    if (info.offset > info.extent_bytes || info.size_bytes > info.extent_bytes - info.offset || info.size_bytes == 0) {
        return fail(EINVAL, "range {}+{} is outside of the extent's {} bytes", info.offset, info.size_bytes,
                    info.extent_bytes);
    }
    return {};
}

template <typename Import>
int import_object(const char* device, const gshm_handle_info* info, uint32_t flags, gshm_object** ret_object,
                  Import&& import) {
    return guarded([&]() -> Status {
        TRY(check_argument(device != nullptr && info != nullptr && ret_object != nullptr,
                           "device, info or ret_object is NULL"));
        TRY(check_flags(flags, GSHM_IMPORT_WRITE, "import"));
        const auto place = TRY(read_struct(info));
        TRY(check_place(place));
        Access access = (flags & GSHM_IMPORT_WRITE) != 0 ? Access::write : Access::read;
        Device* local = TRY(LocalDevices::instance().by_name(device));
        auto object = std::make_unique<gshm_object>();
        object->own = TRY(import(*local, access, place.extent_bytes));
        object->local = local;
        object->access = access;
        object->size_bytes = place.size_bytes;
        object->offset = place.offset;
        object->device = local->info().name;
        *ret_object = object.release();
        return {};
    });
}

}  // namespace gshm::core::client
