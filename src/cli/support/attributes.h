// An object's attributes as the command line shows them.
#pragma once

#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/record.h"

namespace gshm::cli {

// All attributes, sorted by key. An attribute that is removed meanwhile is left out.
std::vector<Attribute> get_attributes(Context& context, const std::string& name);

// {"key", "bytes", and "text" if the value is text or "hex" if not}
Record attribute_record(const Attribute& attribute);
// Text as it is, other values in hex, cut to one line.
std::string attribute_text(const std::string& value);

}  // namespace gshm::cli
