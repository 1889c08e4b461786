#include "io/piece.h"

#include <algorithm>

#include "base/size.h"

namespace gshm::core::io {
namespace {

// From this size a copy from the page cache is worth a separate thread.
constexpr uint64_t kParallelBytes = 128 << 10;
// Size of one request: accepted by the kernel at once, and a multiple of every alignment.
constexpr uint64_t kRequestBytes = uint64_t{1} << 30;

}  // namespace

Request next_request(Piece& piece, const File& file, bool is_write, int zeros_fd) {
    const uint64_t position = piece.file_begin + piece.moved;
    Request request;
    request.is_write = is_write;
    request.memory = piece.memory + piece.moved;
    request.offset = position;
    request.tag = reinterpret_cast<uint64_t>(&piece);
    piece.last_direct = false;
    if (piece.from_zeros) {
        request.fd = zeros_fd;
        request.offset = 0;
        request.bytes = static_cast<uint32_t>(std::min(piece.file_end - position, kRequestBytes));
        request.in_parallel = request.bytes >= kParallelBytes;
        return request;
    }
    uint64_t end = piece.file_end;
    if (piece.direct) {
        const uint64_t unit = file.alignment();
        if (align_down(position, unit) == position && position < piece.direct_end) {
            piece.last_direct = true;
            end = piece.direct_end;
        } else if (align_up(position, unit) < piece.direct_end) {
            end = std::min(end, align_up(position, unit));
        }
    }
    request.bytes = static_cast<uint32_t>(std::min(end - position, kRequestBytes));
    request.fd = piece.last_direct ? file.direct_fd() : file.fd();
    if (request.fd < 0) {  // another request found that the file system refuses it
        piece.last_direct = false;
        request.fd = file.fd();
        request.bytes = static_cast<uint32_t>(std::min(piece.file_end - position, kRequestBytes));
    }
    request.in_parallel =
        piece.in_parallel || file.may_not_answer() || (!piece.last_direct && request.bytes >= kParallelBytes);
    return request;
}

}  // namespace gshm::core::io
