// Errors: gshm.hpp's Result inside, vineyard's Status at the interface.
#pragma once

#include <string>
#include <utility>
#include <vector>
#include <vineyard.h>

#include <gshm/gshm.hpp>

namespace vineyard::detail {

// EBUSY has different meanings for opening and for sealing.
Status to_status(const gshm::Error& error, StatusCode busy = StatusCode::kObjectNotSealed);
// For a call with several ids: the code of the first failure, and a message that names all. OK without failures.
Status to_status(const std::vector<std::pair<ObjectID, Status>>& failed, size_t tried, const char* what);

// Prints a line on standard error.
void log_line(const char* level, const std::string& text);

}  // namespace vineyard::detail
