// How failures travel here: gshm.hpp's Result inside, vineyard's Status at the edge.
#pragma once

#include <string>
#include <utility>
#include <vector>
#include <vineyard.h>

#include <gshm/gshm.hpp>

namespace vineyard::detail {

// EBUSY means one thing where a buffer is opened and another where it is sealed.
Status to_status(const gshm::Error& error, StatusCode busy = StatusCode::kObjectNotSealed);
// Of a call for many ids of which some have failed: the code of the first, and a message that names all. OK without
// any.
Status to_status(const std::vector<std::pair<ObjectID, Status>>& failed, size_t tried, const char* what);

// One on standard error.
void log_line(const char* level, const std::string& text);

}  // namespace vineyard::detail
