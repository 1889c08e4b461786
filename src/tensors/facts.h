// The attribute of an object of tensors: a small JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gshm::core::tensors {

inline constexpr uint64_t kFormat = 1;

struct Facts {
    uint64_t format = kFormat;
    uint64_t tensors = 0;
    uint64_t header_bytes = 0;  // of the JSON
    std::string identity;       // of a loaded file: of its bytes, the selection and the device
    std::string source;         // likewise: of its bytes, for people
    std::string loader;         // the call of gshm_load() that has made the object

    // Other objects have tensors too, which are in no file: checkpoints, shared modules.
    bool is_loaded() const { return format == kFormat && !identity.empty(); }
};

std::string to_text(const Facts& facts);
// EBADMSG: no such object. Unknown members are ignored, and missing ones are empty.
Result<Facts> parse_facts(std::string_view text);

}  // namespace gshm::core::tensors
