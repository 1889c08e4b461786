// A transfer is split into pieces: each is one range of the file, read or written step by step.
#pragma once

#include <cstdint>
#include <memory>

#include "io/file.h"
#include "io/queue.h"
#include "io/staging.h"

namespace gshm::core::io {

class Transfer;

struct Piece {
    Transfer* transfer = nullptr;
    Piece* next = nullptr;  // in its current list
    uint64_t begin = 0;     // in the transfer
    uint64_t bytes = 0;

    // The range moved between file and memory. With O_DIRECT a read into a chunk covers whole blocks, with some
    // unwanted bytes before and after.
    std::byte* memory = nullptr;  // address of the byte at file_begin
    uint64_t file_begin = 0;
    uint64_t file_end = 0;    // end of the wanted bytes
    uint64_t direct_end = 0;  // limit of direct requests; a multiple of the alignment
    uint64_t moved = 0;       // from file_begin
    uint32_t lead = 0;        // unwanted bytes at file_begin

    bool direct = false;       // bypasses the page cache if the alignment permits
    bool last_direct = false;  // the current request is direct
    bool in_parallel = false;
    bool from_zeros = false;  // a hole of the file: zeros from the kernel
    bool by_cufile = false;
    int64_t cufile_moved = 0;
    uint8_t stalls = 0;  // consecutive writes of 0 bytes
    Chunk chunk;
    std::unique_ptr<Error> copy_error;

    bool is_moved() const { return file_begin + moved >= file_end; }
    uint64_t wanted_moved() const {
        const uint64_t wanted = moved > lead ? moved - lead : 0;
        return wanted < bytes ? wanted : bytes;
    }
};

// The next request of an incomplete piece; unaligned parts go through the page cache. Sets last_direct.
Request next_request(Piece& piece, const File& file, bool is_write, int zeros_fd);

}  // namespace gshm::core::io
