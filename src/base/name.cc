#include "base/name.h"

#include <cstdint>

#include "base/limits.h"

namespace gshm::core {

bool is_valid_utf8(std::string_view text) {
    size_t i = 0;
    while (i < text.size()) {
        auto lead = static_cast<uint8_t>(text[i]);
        size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
        if (length == 0 || i + length > text.size()) return false;
        for (size_t k = 1; k < length; ++k) {
            if ((static_cast<uint8_t>(text[i + k]) & 0xC0) != 0x80) return false;
        }
        auto second = length > 1 ? static_cast<uint8_t>(text[i + 1]) : 0;
        if (lead == 0xE0 && second < 0xA0) return false;   // over-long
        if (lead == 0xED && second >= 0xA0) return false;  // surrogates
        if (lead == 0xF0 && second < 0x90) return false;   // over-long
        if (lead == 0xF4 && second >= 0x90) return false;  // beyond U+10FFFF
        i += length;
    }
    return true;
}

namespace {

Status check_lookup_part(std::string_view part) {
    if (part.empty()) return fail(EINVAL, "a name must not have empty components (\"//\" or a slash at an end)");
    if (part == "." || part == "..") return fail(EINVAL, "a name must not have the component \"{}\"", part);
    if (part.size() > limits::kNamePartBytes) {
        return fail(ENAMETOOLONG, "a component of the name has {} bytes; the limit is {}", part.size(),
                    limits::kNamePartBytes);
    }
    if (part.find('\0') != std::string_view::npos) return fail(EINVAL, "a name must not contain a NUL byte");
    return {};
}

Status check_parts(std::string_view name, Status (*check_part)(std::string_view)) {
    if (name.empty()) return fail(EINVAL, "the name is empty");
    if (name.front() == '/') return fail(EINVAL, "names are relative: leave out the leading \"/\"");
    if (name.size() > limits::kNameBytes) {
        return fail(ENAMETOOLONG, "the name has {} bytes; the limit is {}", name.size(), limits::kNameBytes);
    }
    if (name.back() == '/') return fail(EINVAL, "a name must not end with \"/\"");
    for (std::string_view rest = name; !rest.empty();) TRY(check_part(next_part(rest)));
    return {};
}

}  // namespace

Status check_name_part(std::string_view part) {
    TRY(check_lookup_part(part));
    if (!is_valid_utf8(part)) return fail(EILSEQ, "the name is not valid UTF-8");
    return {};
}

Status check_name(std::string_view name) {
    return check_parts(name, check_name_part);
}

Status check_lookup_name(std::string_view name) {
    return check_parts(name, check_lookup_part);
}

Status check_name_prefix(std::string_view prefix) {
    if (prefix.empty()) return {};
    if (prefix.find("//") != std::string_view::npos) return fail(EINVAL, "the prefix has an empty component (\"//\")");
    const size_t slash = prefix.rfind('/');
    std::string_view last = prefix.substr(slash == std::string_view::npos ? 0 : slash + 1);
    if (slash != std::string_view::npos) TRY(check_name(slash == 0 ? "/" : prefix.substr(0, slash)));
    if (prefix.size() > limits::kNameBytes) {
        return fail(ENAMETOOLONG, "the prefix has {} bytes; the limit is {}", prefix.size(), limits::kNameBytes);
    }
    // The last component may be incomplete: "." may begin ".cache".
    return last.empty() || last == "." || last == ".." ? Status{} : check_name_part(last);
}

}  // namespace gshm::core
