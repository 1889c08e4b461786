// What the stress test checks files and trees by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gshm::test {

// The bytes of a file that says how long it is and what it was made of, so that anybody can tell whether it is
// complete.
std::string complete_file(size_t size, uint64_t seed);

// "" if these are the bytes of some complete file.
std::string verify_complete(const std::string& bytes);

// For a tree in which nobody moves any more: "" if every entry can be looked up, is listed once, and link counts are
// the number of names; else a line for each problem.
std::string check_consistency(const std::string& dir);

}  // namespace gshm::test
