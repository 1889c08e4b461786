// Requests with names, and their simple replies.
#pragma once

#include "client/api.h"

namespace gshm::core::client {

inline Status check_names(std::initializer_list<const char*> names) {
    for (const char* name : names) TRY(check_name_argument(name));
    return {};
}

// Cut if it is too long, and ended by a NUL.
inline void set_text(std::span<char> field, std::string_view text) {
    const size_t length = std::min(text.size(), field.size() - 1);
    memcpy(field.data(), text.data(), length);
    field[length] = '\0';
}

inline Status write_bytes(std::string_view bytes, void* ret_bytes, size_t capacity, size_t* ret_count) {
    *ret_count = bytes.size();
    if (capacity == 0) return {};
    if (bytes.size() > capacity) return fail(ERANGE, "{} bytes do not fit the {} given", bytes.size(), capacity);
    if (!bytes.empty()) memcpy(ret_bytes, bytes.data(), bytes.size());
    return {};
}

inline Status write_bytes(const Answer& answer, void* ret_bytes, size_t capacity, size_t* ret_count) {
    return write_bytes(wire::view(GSHM_BODY(answer, BytesReply)->bytes()), ret_bytes, capacity, ret_count);
}

// Seal and unlink return one status for one name.
inline Status call_for_status(Core& core, wire::RequestBody kind, const DaemonConnection::Build& build) {
    // Idempotent requests are sent again.
    bool again = kind == wire::RequestBody::Seal || kind == wire::RequestBody::SetAttribute ||
                 kind == wire::RequestBody::Move || kind == wire::RequestBody::ChangeAcl;
    auto answer = TRY(core.connection().call(kind, build, again ? Lost::retry : Lost::report));
    if (answer.reply->error() == 0) return {};
    return std::unexpected(Error{answer.reply->error(), std::string(wire::view(answer.reply->message()))});
}

}  // namespace gshm::core::client
