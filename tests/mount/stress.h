// Many processes in one directory tree, each checking its own files.
#pragma once

#include <cstdint>
#include <string>

namespace gshm::core::test {

struct StressOptions {
    int processes = 8;
    int operations = 2000;  // of each process; the only limit
    uint64_t seed = 1;
    size_t largest = 96 * 1024;  // of a file
};

// Makes a tree below `dir`, which must exist, and removes it on success. Returns "" or the failures, one line per
// process.
//
// Every process has files of its own with known bytes, and uses shared names: files that appear complete or not at all
// (written under another name, then renamed or linked into place), directories that are created and removed, and names
// without contents. On shared names only the errors of a race are allowed. Afterwards the tree must be consistent:
// every entry can be looked up, and link counts are the number of names.
std::string run_stress(const std::string& dir, StressOptions options = {});

}  // namespace gshm::core::test
