// What `gshm put` is to do, known before the first byte is moved: which file becomes which object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/support/complaints.h"

namespace gshm::cli {

struct PutItem {
    enum class Kind {
        file,       // its size is known; "-" too, if standard input is a file
        stream,     // a pipe, read to its end
        directory,  // an empty one
    };
    Kind kind;
    std::string source;
    std::string name;
    uint64_t size_bytes = 0;  // of a file, when it was looked at
    // What a new version has from the one that it replaces, unless it is told otherwise.
    uint32_t mode = 0600;
    std::string device;  // "": the directory's, else the daemon's first
};

struct PutPlan {
    std::vector<PutItem> items;
    bool single = false;  // one source that is no folder
};

// As cp(1) does: one file becomes the name, unless that is a directory or ends in a slash, and then lands in it;
// several always do. A folder becomes the name, or lands in it likewise. What cannot be put is complained of and left
// out. Throws a Failure if nothing of it makes sense.
PutPlan plan_put(Context& context, const PutArgs& args, Complaints& complaints);

// "c" of "a/b/c" and "a/b/c/"; "" of "/", "." and "..".
std::string last_part(const std::string& path);
// With a slash between, unless one is empty.
std::string join_names(const std::string& directory, const std::string& name);

}  // namespace gshm::cli
