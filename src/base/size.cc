#include "base/size.h"

#include <charconv>

#include "base/limits.h"

namespace gshm::core {

Result<uint64_t> parse_size(std::string_view text) {
    uint64_t number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc::result_out_of_range) return fail(ERANGE, "size '{}' is too large", text);
    if (error != std::errc()) return fail(EINVAL, "'{}' is not a size (examples: 4096, 64K, 8M, 4G)", text);
    std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
    if (suffix.ends_with("iB")) suffix.remove_suffix(2);
    unsigned shift = 0;
    if (suffix == "K" || suffix == "k") shift = 10;
    else if (suffix == "M" || suffix == "m") shift = 20;
    else if (suffix == "G" || suffix == "g") shift = 30;
    else if (suffix == "T" || suffix == "t") shift = 40;
    else if (!suffix.empty()) return fail(EINVAL, "'{}' is not a size (examples: 4096, 64K, 8M, 4G)", text);
    if (number > (limits::kObjectBytes >> shift)) return fail(ERANGE, "size '{}' is too large", text);
    return number << shift;
}

}  // namespace gshm::core
