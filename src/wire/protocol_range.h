// The protocols of two sides, and the one that a session uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::wire {

struct ProtocolRange {
    uint32_t lowest = kProtocolLowest;
    uint32_t highest = kProtocolHighest;
};

// "protocol 1", "protocols 1 to 2"
std::string to_string(ProtocolRange range);

// The protocols that this process speaks: those of the build. For tests, GSHM_PROTOCOL_RANGE=LOWEST-HIGHEST narrows
// them. EINVAL: the variable is no such range.
Result<ProtocolRange> own_protocols();
ProtocolRange offered_by(const Hello& hello);

// The highest protocol of both; none: they cannot speak to each other.
std::optional<uint32_t> common_protocol(ProtocolRange one, ProtocolRange other);

// The first protocol that has the request. Requests are only added to the end of the union.
constexpr uint32_t first_protocol_of(RequestBody kind) {
    return kind <= RequestBody::Move ? 1 : 2;
}
// EOPNOTSUPP: a session with that protocol does not have the request.
Error too_old_for(RequestBody kind, uint32_t protocol);
inline Status check_request(RequestBody kind, uint32_t protocol) {
    if (first_protocol_of(kind) <= protocol) [[likely]]
        return {};
    return std::unexpected(too_old_for(kind, protocol));
}

}  // namespace gshm::core::wire
