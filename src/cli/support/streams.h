// Complete reads and writes of descriptors, and the chunk size of copies.
#pragma once

#include <cstddef>
#include <string_view>

namespace gshm::cli {

// Large enough to hide the round trip to the daemon.
inline constexpr size_t kChunkBytes = size_t{4} << 20;

// Reads until capacity bytes are read or the input ends. what: the name of the input in errors.
size_t read_all(int fd, void* ret_bytes, size_t capacity, std::string_view what);
void write_all(int fd, const void* bytes, size_t count, std::string_view what);

// If the reader is gone, the program ends silently, as by SIGPIPE.
void write_stdout(std::string_view bytes);

// Opens the standard descriptors that are closed. Otherwise the next socket or file would get their numbers.
void ensure_standard_descriptors();

}  // namespace gshm::cli
