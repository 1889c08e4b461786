// The JSON of a record. Only this file and manifest.cc depend on the JSON library.
#pragma once

#include <string>

#include "cli/support/record.h"

namespace gshm::cli {

// Keys in the order of the record, on one line or indented. Invalid UTF-8 becomes U+FFFD.
std::string to_json(const Record& record, bool indented);

}  // namespace gshm::cli
