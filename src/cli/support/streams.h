// Whole reads and writes of descriptors, and chunks for copies.
#pragma once

#include <cstddef>
#include <string_view>

namespace gshm::cli {

// How much a copy holds at once: large enough that a round trip to the daemon does not show.
inline constexpr size_t kChunkBytes = size_t{4} << 20;

// Reads until capacity bytes are there or the input ends. what names the input in errors.
size_t read_all(int fd, void* ret_bytes, size_t capacity, std::string_view what);
void write_all(int fd, const void* bytes, size_t count, std::string_view what);

// A reader that has gone away ends the program as SIGPIPE does: quietly.
void write_stdout(std::string_view bytes);

// The standard descriptors that are not open would be given to the next socket or file: fills them.
void ensure_standard_descriptors();

}  // namespace gshm::cli
