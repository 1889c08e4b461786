#include "wire/protocol_range.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace gshm::core::wire {

std::string to_string(ProtocolRange range) {
    if (range.lowest == range.highest) return fmt::format("protocol {}", range.lowest);
    return fmt::format("protocols {} to {}", range.lowest, range.highest);
}

Result<ProtocolRange> own_protocols() {
    const char* chosen = secure_getenv("GSHM_PROTOCOL_RANGE");
    if (chosen == nullptr || *chosen == '\0') return ProtocolRange{};
    const std::string_view text(chosen);
    const char* end = text.data() + text.size();
    ProtocolRange range;
    auto low = std::from_chars(text.data(), end, range.lowest);
    bool good = low.ec == std::errc{} && low.ptr != end && *low.ptr == '-';
    if (good) {
        auto high = std::from_chars(low.ptr + 1, end, range.highest);
        good = high.ec == std::errc{} && high.ptr == end;
    }
    if (!good || range.lowest < kProtocolLowest || range.highest > kProtocolHighest || range.lowest > range.highest) {
        return fail(EINVAL, "GSHM_PROTOCOL_RANGE={} is not a part of {}-{}", text, kProtocolLowest, kProtocolHighest);
    }
    return range;
}

ProtocolRange offered_by(const Hello& hello) {
    return {hello.protocol(), std::max(hello.protocol(), hello.highest())};
}

std::optional<uint32_t> common_protocol(ProtocolRange one, ProtocolRange other) {
    const uint32_t highest = std::min(one.highest, other.highest);
    if (highest < std::max(one.lowest, other.lowest)) return std::nullopt;
    return highest;
}

Error too_old_for(RequestBody kind, uint32_t protocol) {
    return {EOPNOTSUPP,
            fmt::format("the running gshmd is too old for this call: it speaks protocol {}, the call needs {}; "
                        "replace it with a newer one (`gshmd --takeover` keeps all objects)",
                        protocol, first_protocol_of(kind))};
}

}  // namespace gshm::core::wire
