// Many processes in one directory tree, each checking its own files.
#pragma once

#include <cstdint>
#include <string>

namespace gshm::core::test {

struct StressOptions {
    int processes = 8;
    int operations = 2000;  // of each process; nothing else bounds it
    uint64_t seed = 1;
    size_t largest = 96 * 1024;  // of a file
};

// Below `dir`, which must exist: makes a tree, and removes it on success. "" or the failures, one line per process.
//
// Every process has files of its own, whose bytes it knows, and uses shared names: files that appear complete or not at
// all (written aside, then renamed or linked into place), directories that come and go, names that only exist. On
// shared names only the errors of a race are allowed. Afterwards the tree must be consistent: every entry can be looked
// up, link counts are the number of names.
std::string run_stress(const std::string& dir, StressOptions options = {});

}  // namespace gshm::core::test
