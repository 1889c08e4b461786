// The JSON of a record. Only this file and manifest.cc depend on the JSON library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/support/record.h"

namespace gshm::cli {

// Keys in the order of the record, on one line or indented. Invalid UTF-8 becomes U+FFFD.
std::string to_json(const Record& record, bool indented);

// The number at a key of a JSON object. nullopt: the text is no such object.
std::optional<uint64_t> json_number(const std::string& text, const char* key);
// Likewise, for a text.
std::optional<std::string> json_text(const std::string& text, const char* key);

}  // namespace gshm::cli
