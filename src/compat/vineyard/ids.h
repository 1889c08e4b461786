// What a buffer and a name are called in gshm: "vineyard/o8123456789abcdef", and "vineyard/names/NAME", a symbolic link
// to it, so that a name keeps no memory.
#pragma once

#include <optional>
#include <string>
#include <vineyard.h>

namespace vineyard::detail {

inline constexpr char kFolder[] = "vineyard";
inline constexpr char kNamesFolder[] = "vineyard/names";

// Never one that was there before, for all that chance can do; with the bit of a blob.
ObjectID random_id();
std::string object_name(ObjectID id);

// Any text but the empty one is a name: "/" and what gshm has no place for are escaped, as %2F. No result begins with a
// dot.
std::string name_link(const std::string& name);
// A link that is about to take the place of another.
std::string new_name_link();
// Where the link of a name leads, and back; nothing if it is no such link.
std::string link_target(ObjectID id);
std::optional<ObjectID> linked_id(const std::string& target);

}  // namespace vineyard::detail
