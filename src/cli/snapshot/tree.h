// Collects the entries to be saved, one directory at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/snapshot/format.h"
#include "cli/support/context.h"

namespace gshm::cli {

struct TreeEvents {
    std::function<void(const Failure&)> failed;       // an entry that is left out because of an error
    std::function<void(const LeftOut&)> left_out;     // an entry that the format cannot hold
    std::function<void(const std::string&)> noticed;  // a warning for the user
};

// All entries at and below the names (none: all names), with the directories above them. Objects have no chunks yet. An
// entry that cannot be read, or that a restore could not create, is reported and listed in `left_out`. A missing name
// is also reported.
Manifest gather_tree(Context& context, const std::vector<std::string>& names, const TreeEvents& events);

// As JSON: [{"name", "reason"}].
std::vector<Record> left_out_records(const std::vector<LeftOut>& left_out);

// Whether the entry is the name itself or below it.
bool is_at_or_below(std::string_view entry, std::string_view name);

}  // namespace gshm::cli
