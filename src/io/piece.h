// A transfer goes by pieces: each is one range of the file, read or written step by step.
#pragma once

#include <cstdint>
#include <memory>

#include "io/file.h"
#include "io/queue.h"
#include "io/staging.h"

namespace gshm::io {

class Transfer;

struct Piece {
    Transfer* transfer = nullptr;
    Piece* next = nullptr;  // in whatever list it is
    uint64_t begin = 0;     // in the transfer
    uint64_t bytes = 0;

    // What is moved between file and memory. With O_DIRECT a read into a chunk takes whole blocks: some bytes more than
    // are wanted, before and behind.
    std::byte* memory = nullptr;  // of the byte at file_begin
    uint64_t file_begin = 0;
    uint64_t file_end = 0;    // where the wanted bytes end
    uint64_t direct_end = 0;  // up to here requests may go past the page cache; a multiple of the alignment
    uint64_t moved = 0;       // from file_begin on
    uint32_t lead = 0;        // bytes at file_begin that are not wanted

    bool direct = false;        // past the page cache where the alignment allows it
    bool last_direct = false;   // the request under way is such a one
    bool in_parallel = false;
    bool from_zeros = false;    // a hole of the file: zeros, from the kernel
    bool by_cufile = false;
    int64_t cufile_moved = 0;
    uint8_t stalls = 0;         // writes in a row that wrote nothing
    Chunk chunk;
    std::unique_ptr<Error> copy_error;

    bool is_moved() const { return file_begin + moved >= file_end; }
    uint64_t wanted_moved() const {
        const uint64_t wanted = moved > lead ? moved - lead : 0;
        return wanted < bytes ? wanted : bytes;
    }
};

// Where an unaligned stretch ends that has to go through the page cache, and so on: the next request of a piece that is
// not moved yet. Sets last_direct.
Request next_request(Piece& piece, const File& file, bool is_write, int zeros_fd);

}  // namespace gshm::io
