// Checks of files and trees for the stress test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gshm::core::test {

// The bytes of a file that contains its length and its seed, so that its completeness can be checked.
std::string complete_file(size_t size, uint64_t seed);

// "" if these are the bytes of a complete file.
std::string verify_complete(const std::string& bytes);

// For a tree without activity: "" if every entry can be looked up, is listed once, and link counts are the number of
// names; otherwise a line for each problem.
std::string check_consistency(const std::string& dir);

}  // namespace gshm::core::test
