// The names of buffers in gshm: "vineyard/o8123456789abcdef", and "vineyard/names/NAME", a symbolic link to it, so that
// a name keeps no memory.
#pragma once

#include <optional>
#include <string>
#include <vineyard.h>

namespace vineyard::detail {

inline constexpr char kFolder[] = "vineyard";
inline constexpr char kNamesFolder[] = "vineyard/names";

// A random id with the bit of a blob; collisions are practically impossible.
ObjectID random_id();
std::string object_name(ObjectID id);

// Any non-empty text is a name: "/" and other bytes that gshm does not accept are escaped, as %2F. No result begins
// with a dot.
std::string name_link(const std::string& name);
// A temporary link that replaces another.
std::string new_name_link();
// The target of a name's link, and the inverse; empty if it is not such a link.
std::string link_target(ObjectID id);
std::optional<ObjectID> linked_id(const std::string& target);

}  // namespace vineyard::detail
