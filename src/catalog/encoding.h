// Rare properties of nodes, in one column: further names, attributes, former memory.
#pragma once

#include <string>
#include <string_view>

#include "store/restore.h"

namespace gshm::core {

// "": none.
std::string encode_more(const Node& node);
// EUCLEAN for bytes that encode_more() cannot have written.
Status decode_more(std::string_view bytes, SavedNode& node);

}  // namespace gshm::core
