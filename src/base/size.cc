#include "base/size.h"

#include <charconv>

#include "base/limits.h"

namespace gshm::core {

Result<uint64_t> parse_size(std::string_view text) {
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    const std::string_view digits = text.substr(hex ? 2 : 0);
    uint64_t number = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, hex ? 16 : 10);
    if (error == std::errc::result_out_of_range) return fail(ERANGE, "size '{}' is too large", text);
    const std::string_view unit = digits.substr(static_cast<size_t>(end - digits.data()));
    const bool plain = unit.empty() || unit == "B";
    const size_t letter = plain ? 0 : std::string_view("KkMmGgTt").find(unit[0]);
    const bool known = plain || (letter != std::string_view::npos && (unit.size() == 1 || unit.substr(1) == "iB"));
    if (error != std::errc() || !known) return fail(EINVAL, "'{}' is not a size (examples: 4096, 64K, 8M, 4G)", text);
    const size_t shift = plain ? 0 : (letter / 2 + 1) * 10;
    if (number > (limits::kObjectBytes >> shift)) return fail(ERANGE, "size '{}' is too large", text);
    return number << shift;
}

std::string size_text(uint64_t bytes) {
    if (bytes < 1024) return fmt::format("{} bytes", bytes);
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    do {
        value /= 1024;
        ++unit;
    } while (value >= 1023.5 && unit < 6);
    return value < 9.95 ? fmt::format("{:.1f} {}iB", value, " KMGTPE"[unit])
                        : fmt::format("{:.0f} {}iB", value, " KMGTPE"[unit]);
}

}  // namespace gshm::core
