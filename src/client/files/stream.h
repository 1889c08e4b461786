// Copies a stream, which can be read only once, to an object, which has a fixed size.
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
    // Reads until capacity bytes are read or the stream ends.
    Result<size_t> read(char* ret_bytes, size_t capacity);
    const std::optional<StreamChecksum>& checksum() const { return checksum_; }

private:
    int fd_;
    std::optional<StreamChecksum> checksum_;
};

// A complete stream of unknown length, held in memory if it is short, else in an unnamed file. So memory stays bounded,
// and even SIGKILL leaves nothing behind.
class HeldStream {
public:
    static Result<HeldStream> read_to_end(StreamReader& stream, const TransferProgress& progress);

    uint64_t size_bytes() const { return file_ ? file_bytes_ : memory_.size(); }
    // Copies to an object of that size. Returns GSHM_PATH_....
    Result<uint32_t> copy_to(gshm_object& object, TransferProgress& progress) const;

private:
    HeldStream() = default;
    Status move_to_file(StreamReader& stream, const TransferProgress& progress);

    std::string memory_;
    UniqueFd file_;
    uint64_t file_bytes_ = 0;
};

// Copies directly from the stream to the object, all of its bytes. EFBIG: the stream is longer; ENODATA: shorter.
Status copy_stream(StreamReader& stream, gshm_object& object, const TransferProgress& progress);

}  // namespace gshm::core::client
