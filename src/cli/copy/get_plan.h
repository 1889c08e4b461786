// What `gshm get` is to do, known before the first byte is moved: which object becomes which file.
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
    std::vector<std::string> folders;  // to be made, each before what is in it
    std::vector<GetItem> items;
    bool single = false;  // one name that is no directory
};

// As cp(1) does: one object becomes the file, unless that is a folder or ends in a slash, and then lands in it; several
// always do. A directory becomes the folder, or lands in it likewise. The file is not "-". What cannot be got is
// complained of and left out. Throws a Failure if nothing of it makes sense.
GetPlan plan_get(Context& context, const GetArgs& args, Complaints& complaints);

}  // namespace gshm::cli
