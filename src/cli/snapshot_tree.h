// What is to be saved: all names below some, looked up one directory at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "context.h"
#include "manifest.h"

namespace gshm::cli {

struct TreeEvents {
    std::function<void(const Failure&)> failed;       // that one is left out
    std::function<void(const std::string&)> noticed;  // what the user should know
};

// All below the names (none: everything), with the directories on their way. Objects have no chunks yet. What cannot be
// read is told and left out; a name that is not there is told, too.
Manifest gather_tree(Context& context, const std::vector<std::string>& names, const TreeEvents& events);

// The entry is the name, or below it.
bool is_at_or_below(std::string_view entry, std::string_view name);

}  // namespace gshm::cli
