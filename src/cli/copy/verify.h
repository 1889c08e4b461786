// Whether an object has the bytes that it should.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cli/copy/copies.h"

struct XXH3_state_s;

namespace gshm::cli {

// Where a file's part begins that an object is a copy of, and how the file is called.
struct FilePart {
    int fd;
    uint64_t offset = 0;
    const std::string& path;
};

// Compares all of the object with the file, which is read anew, from the disk where its file system allows that. Throws
// a Failure that says where they differ, also if the file ends before, and Stopped.
void compare_with_file(gshm_object* object, const std::string& name, const FilePart& part, CopyWatch& watch);

// For bytes that come only once: a checksum of them, to be compared with that of the object.
class StreamChecksum {
public:
    StreamChecksum();
    void add(std::span<const char> bytes);
    // As above.
    void compare_with(gshm_object* object, const std::string& name, const std::string& source, CopyWatch& watch) const;

private:
    struct Free {
        void operator()(XXH3_state_s* state) const;
    };
    std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace gshm::cli
