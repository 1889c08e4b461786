// Helpers of the C functions: argument checks, and the conversion of exceptions to error codes.
#pragma once

#include <cstring>
#include <new>

#include "base/limits.h"
#include "client/errors.h"
#include "client/object.h"
#include "client/structs.h"

namespace gshm::core::client {

inline Status check_argument(bool good, const char* what) {
    if (good) return {};
    return fail(EINVAL, "{}", what);
}

// A name that is too long fails alone in its batch. It is cut to one byte over the limit, so that the daemon rejects
// it.
inline size_t sent_length(const char* name) {
    return strnlen(name, limits::kNameBytes + 1);
}

// The daemon validates names. This check only rejects those that do not fit a message.
inline Status check_name_argument(const char* name) {
    if (name == nullptr) return fail(EINVAL, "a name is NULL");
    size_t bytes = strlen(name);
    if (bytes <= limits::kNameBytes) return {};
    return fail(ENAMETOOLONG, "the name has {} bytes; the limit is {}", bytes, limits::kNameBytes);
}

// `known`: the flags of the call; convention 5 of gshm.h.
inline Status check_flags(uint32_t flags, uint32_t known, const char* call) {
    if ((flags & ~known) == 0) return {};
    return fail(EINVAL, "unknown {} flags {:#x}", call, flags & ~known);
}

inline constexpr uint32_t kCreateFlags =
    GSHM_CREATE_KEEP | GSHM_CREATE_COMPRESSIBLE | GSHM_CREATE_DEDICATED | GSHM_CREATE_UNNAMED | GSHM_CREATE_EMPTY |
    GSHM_CREATE_OWNER | GSHM_CREATE_NO_MAP | GSHM_CREATE_EVICTABLE | GSHM_CREATE_EPHEMERAL | GSHM_CREATE_TTL_UNUSED;

// Runs a body that returns Status. Returns 0 or -errno. No exception leaves it.
template <typename Body>
int guarded(Body&& body) {
    try {
        return to_code(body());
    } catch (const std::bad_alloc&) {
        return set_last_error(ENOMEM, "out of memory");
    } catch (const std::exception& error) {
        return set_last_error(EIO, error.what());
    }
}

// The same for calls on a client.
template <typename Body>
int with_client(gshm_client* client, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_argument(client != nullptr, "client is NULL"));
        TRY(client->core->check_fork());
        return body(*client->core);
    });
}

template <typename Body>
int with_object(gshm_object* object, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_argument(object != nullptr, "object is NULL"));
        TRY(object->check_use());
        return body(*object);
    });
}

inline Status check_range(const gshm_object& object, uint64_t offset, uint64_t bytes) {
    if (offset <= object.size_bytes && bytes <= object.size_bytes - offset) return {};
    return fail(EINVAL, "range {}+{} is outside of the object's {} bytes", offset, bytes, object.size_bytes);
}

inline Status check_writable(const gshm_object& object) {
    if (object.sealed) return fail(EPERM, "the object is sealed and cannot be written");
    if (object.access == Access::read) return fail(EACCES, "the object was opened for reading only");
    return {};
}

// The body of a reply, or EPROTO if it has another type.
#define GSHM_BODY(answer, Type)                                                                       \
    ({                                                                                                \
        const auto* typed_body_ = (answer).reply->body_as_##Type();                                   \
        if (typed_body_ == nullptr) return fail(EPROTO, "gshmd answered something else than " #Type); \
        typed_body_;                                                                                  \
    })

}  // namespace gshm::core::client
