// The structs of gshm.h that begin with struct_size, and the one policy for callers whose header is older or newer than
// this library; convention 4 of gshm.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "base/result.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

// The size of a struct in the first version that had it, and the values of its _INIT. The first size never changes when
// the struct grows.
template <typename T>
struct StructRule;

#define GSHM_STRUCT_RULE(Type, first_bytes, INIT)            \
    template <>                                              \
    struct StructRule<Type> {                                \
        static constexpr uint32_t kFirstBytes = first_bytes; \
        static constexpr Type kDefaults = INIT;              \
        static_assert(sizeof(Type) >= kFirstBytes);          \
    };
GSHM_STRUCT_RULE(gshm_connect_options, 16, GSHM_CONNECT_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_daemon_info, 336, GSHM_DAEMON_INFO_INIT)
GSHM_STRUCT_RULE(gshm_device_info, 344, GSHM_DEVICE_INFO_INIT)
GSHM_STRUCT_RULE(gshm_mount_options, 24, GSHM_MOUNT_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_tier_info, 1312, GSHM_TIER_INFO_INIT)
GSHM_STRUCT_RULE(gshm_mount_info, 2312, GSHM_MOUNT_INFO_INIT)
GSHM_STRUCT_RULE(gshm_option_change, 584, GSHM_OPTION_CHANGE_INIT)
GSHM_STRUCT_RULE(gshm_limit, 120, GSHM_LIMIT_INIT)
GSHM_STRUCT_RULE(gshm_create_spec, 64, GSHM_CREATE_SPEC_INIT)
GSHM_STRUCT_RULE(gshm_stat_info, 104, GSHM_STAT_INFO_INIT)
GSHM_STRUCT_RULE(gshm_holder, 52, GSHM_HOLDER_INIT)
GSHM_STRUCT_RULE(gshm_make_spec, 48, GSHM_MAKE_SPEC_INIT)
GSHM_STRUCT_RULE(gshm_changes, 20, GSHM_CHANGES_INIT)
GSHM_STRUCT_RULE(gshm_share_info, 1048, GSHM_SHARE_INFO_INIT)
GSHM_STRUCT_RULE(gshm_event, 80, GSHM_EVENT_INIT)
GSHM_STRUCT_RULE(gshm_mirror_options, 32, GSHM_MIRROR_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_pool_options, 40, GSHM_POOL_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_pool_stats, 48, GSHM_POOL_STATS_INIT)
GSHM_STRUCT_RULE(gshm_location, 48, GSHM_LOCATION_INIT)
GSHM_STRUCT_RULE(gshm_handle_info, 32, GSHM_HANDLE_INFO_INIT)
GSHM_STRUCT_RULE(gshm_transfer_info, 24, GSHM_TRANSFER_INFO_INIT)
GSHM_STRUCT_RULE(gshm_transfer_options, 24, GSHM_TRANSFER_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_ring_options, 8, GSHM_RING_OPTIONS_INIT)
GSHM_STRUCT_RULE(gshm_io, 48, GSHM_IO_INIT)
GSHM_STRUCT_RULE(gshm_tensor_spec, 40, GSHM_TENSOR_SPEC_INIT)
GSHM_STRUCT_RULE(gshm_tensor_info, 56, GSHM_TENSOR_INFO_INIT)
GSHM_STRUCT_RULE(gshm_tensor_choice, 40, GSHM_TENSOR_CHOICE_INIT)
GSHM_STRUCT_RULE(gshm_load_spec, 72, GSHM_LOAD_SPEC_INIT)
GSHM_STRUCT_RULE(gshm_model_part, 56, GSHM_MODEL_PART_INIT)
#undef GSHM_STRUCT_RULE

// No struct becomes larger. The limit catches a struct_size that the caller forgot to set.
inline constexpr uint32_t kMostStructBytes = 4096;

template <typename T>
Status check_struct_size(uint32_t size) {
    if (size < StructRule<T>::kFirstBytes) {
        return fail(EINVAL, "struct_size is {}, and at least {}: use the ..._INIT macro", size,
                    StructRule<T>::kFirstBytes);
    }
    if (size > kMostStructBytes) return fail(E2BIG, "struct_size is {}: use the ..._INIT macro", size);
    return {};
}

// A copy of an input struct of `size` bytes. Fields that an older caller does not have get their defaults. E2BIG: a
// field that only a newer library has is set.
template <typename T>
Result<T> read_struct(const void* given, uint32_t size) {
    TRY(check_struct_size<T>(size));
    T known = StructRule<T>::kDefaults;
    memcpy(&known, given, std::min<size_t>(size, sizeof known));
    known.struct_size = sizeof known;
    const std::span all(static_cast<const char*>(given), size);
    const auto tail = all.subspan(std::min<size_t>(size, sizeof known));
    if (std::ranges::any_of(tail, [](char byte) { return byte != 0; })) {
        return fail(E2BIG, "a struct of {} bytes has fields that this library, {}, does not know", size,
                    gshm_version());
    }
    return known;
}
template <typename T>
Result<T> read_struct(const T* given) {
    return read_struct<T>(given, given->struct_size);
}
// The same for options that may be NULL.
template <typename T>
Result<T> read_options(const T* given) {
    return given == nullptr ? Result<T>(StructRule<T>::kDefaults) : read_struct(given);
}

// Whether write_struct() will succeed, for calls that have effects before it. The struct may be NULL.
template <typename T>
Status check_output(const T* ret) {
    return ret == nullptr ? Status{} : check_struct_size<T>(ret->struct_size);
}

// Writes the fields that the caller's struct has. Fields that only a newer library knows become zero.
template <typename T>
Status write_struct(void* ret, uint32_t size, const T& value) {
    TRY(check_struct_size<T>(size));
    memset(ret, 0, size);
    memcpy(ret, &value, std::min<size_t>(size, sizeof value));
    memcpy(ret, &size, sizeof size);
    return {};
}
template <typename T>
Status write_struct(T* ret, const T& value) {
    return ret == nullptr ? Status{} : write_struct(ret, ret->struct_size, value);
}

// An element of a caller's array, in which every element has the size of the first.
template <typename T>
const void* element(const T* array, size_t index) {
    return reinterpret_cast<const char*>(array) + index * array[0].struct_size;
}
template <typename T>
void* element(T* array, size_t index) {
    return reinterpret_cast<char*>(array) + index * array[0].struct_size;
}

// Writes as many elements as the array holds.
template <typename T>
Status write_structs(std::span<const T> values, T* ret, size_t capacity) {
    if (capacity == 0) return {};
    const uint32_t size = ret[0].struct_size;
    TRY(check_struct_size<T>(size));
    for (size_t i = 0; i < std::min(values.size(), capacity); ++i) TRY(write_struct(element(ret, i), size, values[i]));
    return {};
}

}  // namespace gshm::core::client
