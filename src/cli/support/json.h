// The JSON of a record. This and manifest.cc are the only places that know the JSON library.
#pragma once

#include <string>

#include "cli/support/record.h"

namespace gshm::cli {

// Keys in the record's order, on one line, or indented for reading. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Record& record, bool indented);

}  // namespace gshm::cli
