// The plan of `gshm get`: pairs of an object and a file, complete before the first byte is copied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/support/complaints.h"

namespace gshm::cli {

struct GetItem {
    std::string name;
    std::string file;
    uint64_t size_bytes = 0;
};

struct GetPlan {
    std::vector<std::string> folders;  // to be made, parents first
    std::vector<GetItem> items;
    bool single = false;  // one name that is not a directory
};

// Follows cp(1): one object becomes the file, or a file in it if FILE is a folder or ends in a slash; several objects
// always become files in the folder. A directory becomes the folder, or a folder in it. FILE is not "-". An object that
// cannot be read is reported and left out. Throws a Failure if the whole command is invalid.
GetPlan plan_get(Context& context, const GetArgs& args, Complaints& complaints);

}  // namespace gshm::cli
