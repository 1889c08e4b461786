// What few nodes have, in one column: further names, attributes, memory from before.
#pragma once

#include <string>
#include <string_view>

#include "store/restore.h"

namespace gshm {

// "": nothing.
std::string encode_more(const Node& node);
// EUCLEAN for what encode_more() cannot have written.
Status decode_more(std::string_view bytes, SavedNode& node);

}  // namespace gshm
