// Random operations on one file, each compared with a copy in memory, after the idea of fsx (1991).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gshm::core::test {

struct FsxOptions {
    bool use_mmap = true;
    bool use_fallocate = true;
    bool use_punch = true;
    bool use_copy_file_range = true;
    size_t largest = 512 * 1024 + 1237;  // maximum size of the file; not a multiple of the page size
    int whole_check_every = 16;          // operations between readings of the whole file
};

// Makes the file at `path` (replacing an existing one), executes `operations` that depend on the seed alone, and
// removes it. "" if every byte and size was correct; otherwise the difference, with the last 20 operations.
std::string run_fsx(const std::string& path, uint64_t seed, int operations, FsxOptions options = {});

}  // namespace gshm::core::test
