// The plan of `gshm put`: pairs of a file and an object, complete before the first byte is copied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/support/complaints.h"

namespace gshm::cli {

struct PutItem {
    enum class Kind {
        file,       // of known size; also "-" if standard input is a file
        stream,     // a pipe, read to its end
        directory,  // an empty one
    };
    Kind kind;
    std::string source;
    std::string name;
    uint64_t size_bytes = 0;  // of a file, at the time of the plan
    // With --replace, the defaults are those of the replaced object.
    uint32_t mode = 0;               // 0: the daemon's default
    std::vector<AclEntry> acl = {};  // none: that which the directory gives
    std::string device = {};         // "": the directory's device, else the daemon's first
};

struct PutPlan {
    std::vector<PutItem> items;
    bool single = false;  // one source that is not a folder
};

// Follows cp(1): one file becomes the name, or an object in it if NAME is a directory or ends in a slash; several files
// always become objects in the directory. A folder becomes the name, or a directory in it. A file that cannot be read
// is reported and left out. Throws a Failure if the whole command is invalid.
PutPlan plan_put(Context& context, const PutArgs& args, Complaints& complaints);

// "c" of "a/b/c" and "a/b/c/"; "" of "/", "." and "..".
std::string last_part(const std::string& path);
// Joined with a slash, unless one of them is empty.
std::string join_names(const std::string& directory, const std::string& name);

}  // namespace gshm::cli
