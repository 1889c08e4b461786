// What is to be saved: all names below some, looked up one directory at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/snapshot/format.h"

namespace gshm::cli {

struct TreeEvents {
    std::function<void(const Failure&)> failed;       // what it is about is left out
    std::function<void(const LeftOut&)> left_out;     // nothing has failed: a snapshot cannot hold it
    std::function<void(const std::string&)> noticed;  // what the user should know
};

// All below the names (none: everything), with the directories on their way. Objects have no chunks yet. What cannot be
// read, or not be made again by a restore, is told and is in `left_out`; a name that is not there is told, too.
Manifest gather_tree(Context& context, const std::vector<std::string>& names, const TreeEvents& events);

// For the output: [{"name", "reason"}].
std::vector<Record> left_out_records(const std::vector<LeftOut>& left_out);

// The entry is the name, or below it.
bool is_at_or_below(std::string_view entry, std::string_view name);

}  // namespace gshm::cli
