// Bytes that come once, from a pipe, into an object that has its size from the beginning.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "client/files/transfer.h"
#include "client/files/verify.h"

namespace gshm::core::client {

// Reads a stream in chunks.
class StreamReader {
public:
    StreamReader(int fd, bool checksum) : fd_(fd) {
        if (checksum) checksum_.emplace();
    }
    // Until capacity bytes are there or the stream ends.
    Result<size_t> read(char* ret_bytes, size_t capacity);
    const std::optional<StreamChecksum>& checksum() const { return checksum_; }

private:
    int fd_;
    std::optional<StreamChecksum> checksum_;
};

// All of a stream whose length nobody knows before: in memory if it is short, in a file without a name if not. Memory stays
// bounded, and nothing is left behind even by SIGKILL.
class HeldStream {
public:
    static Result<HeldStream> read_to_end(StreamReader& stream, const TransferProgress& progress);

    uint64_t size_bytes() const { return file_ ? file_bytes_ : memory_.size(); }
    // Into an object of that size; GSHM_PATH_....
    Result<uint32_t> copy_to(gshm_object& object, TransferProgress& progress) const;

private:
    HeldStream() = default;
    Status move_to_file(StreamReader& stream, const TransferProgress& progress);

    std::string memory_;
    UniqueFd file_;
    uint64_t file_bytes_ = 0;
};

// Straight from the stream into the object, all of its bytes. EFBIG: the stream has more; ENODATA: fewer.
Status copy_stream(StreamReader& stream, gshm_object& object, const TransferProgress& progress);

}  // namespace gshm::core::client
