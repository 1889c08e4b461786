// Many processes at once in one directory tree, each checking what nobody else may have touched.
#pragma once

#include <cstdint>
#include <string>

namespace gshm::test {

struct StressOptions {
    int processes = 8;
    int operations = 2000;  // of each process; nothing else bounds it
    uint64_t seed = 1;
    size_t largest = 96 * 1024;  // of a file
};

// Below `dir`, which must exist: it makes a tree, and removes it if all went well. "" or what went wrong, a line for
// each process that found something.
//
// Every process has files of its own, whose bytes it knows, and takes part in names that all share: files that appear
// complete or not at all (written aside, then renamed or linked into place), directories that come and go, names that
// only exist. On shared names the errors that a race can cause are allowed and no others. Afterwards the tree has to
// be consistent: every entry can be looked up, link counts are the number of names.
std::string run_stress(const std::string& dir, StressOptions options = {});

}  // namespace gshm::test
