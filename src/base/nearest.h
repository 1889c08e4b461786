// The most similar word, for messages about unknown ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gshm::core {

// By the number of letters that are inserted, removed, replaced or swapped with their neighbour. "": none is similar.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);
// "; did you mean PREFIXnearest?", or nothing.
std::string nearest_hint(std::string_view word, std::span<const std::string_view> known, std::string_view prefix = "");

}  // namespace gshm::core
