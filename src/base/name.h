// Object names: relative paths of UTF-8 parts.
#pragma once

#include <string_view>

#include "base/result.h"

namespace gshm {

bool is_valid_utf8(std::string_view text);

// ENAMETOOLONG, EINVAL or EILSEQ with a sentence that says which rule the name breaks. The empty name is refused;
// callers for whom it means the root test for it before.
Status check_name(std::string_view name);
Status check_name_part(std::string_view part);

// What names may begin with: "" (all do), "models/" (what is in there), "models/ll". The same errors.
Status check_name_prefix(std::string_view prefix);

// Splits off the first part: "a/b/c" gives "a" and leaves "b/c".
inline std::string_view next_part(std::string_view& rest) {
    size_t slash = rest.find('/');
    std::string_view part = rest.substr(0, slash);
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
    return part;
}

}  // namespace gshm
