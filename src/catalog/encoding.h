// Rare properties of nodes, in one column: further names, attributes, former memory.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "store/restore.h"

namespace gshm::core {

// "": none. device_numbers: of each device, as in the rows.
std::string encode_more(const Node& node, std::span<const int64_t> device_numbers);
// EUCLEAN for bytes that encode_more() cannot have written.
Status decode_more(std::string_view bytes, SavedNode& node, const std::map<int64_t, DeviceIndex>& device_indexes);

}  // namespace gshm::core
