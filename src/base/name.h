// Object names: relative paths with UTF-8 components.
#pragma once

#include <string_view>

#include "base/result.h"

namespace gshm::core {

bool is_valid_utf8(std::string_view text);

// ENAMETOOLONG, EINVAL or EILSEQ, with a sentence that names the broken rule. The empty name is invalid; callers for
// which it means the root test for it first.
Status check_name(std::string_view name);
// The same without EILSEQ, to look up and to remove: the mount makes names that are not UTF-8.
Status check_lookup_name(std::string_view name);
Status check_name_part(std::string_view part);

// Checks a prefix of names: "" (matches all), "models/" (names in the directory), "models/ll". Same errors.
Status check_name_prefix(std::string_view prefix);

// Splits off the first component: "a/b/c" gives "a" and leaves "b/c".
inline std::string_view next_part(std::string_view& rest) {
    size_t slash = rest.find('/');
    std::string_view part = rest.substr(0, slash);
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
    return part;
}

}  // namespace gshm::core
