#include "client/files/stream.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace gshm::core::client {
namespace {

// Large enough to hide the round trip to gshmd.
constexpr size_t kChunkBytes = size_t{4} << 20;
// Streams up to this size are held in memory.
constexpr size_t kHeldBytes = size_t{64} << 20;

Status copy_in(gshm_object& object, uint64_t offset, std::string_view bytes) {
    if (bytes.empty()) return {};
    return as_status(gshm_copy_in(&object, offset, bytes.data(), bytes.size()));
}

// /var/tmp is for large files. /tmp may be in memory.
std::string folder_for_streams() {
    const char* chosen = getenv("TMPDIR");
    return chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
}

std::unexpected<Error> folder_failure(const std::string& folder, int code, uint64_t bytes) {
    return fail(code, "{} ($TMPDIR), which holds the stream until its end: {}, after {} bytes", folder, strerror(code),
                bytes);
}

Result<UniqueFd> open_nameless_file(const std::string& folder, uint64_t bytes) {
    auto file = UniqueFd::adopt(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file) return file;
    auto path = folder + "/gshm-put-XXXXXX";
    file = UniqueFd::adopt(mkostemp(path.data(), O_CLOEXEC));
    if (!file) return folder_failure(folder, errno, bytes);
    unlink(path.c_str());
    return file;
}

Status write_whole(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = write(fd, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("write");
        bytes.remove_prefix(static_cast<size_t>(count));
    }
    return {};
}

}  // namespace

Result<size_t> StreamReader::read(char* ret_bytes, size_t capacity) {
    size_t done = 0;
    while (done < capacity) {
        const ssize_t count = ::read(fd_, ret_bytes + done, capacity - done);
        if (count == 0) break;
        if (count < 0 && errno == EAGAIN) {
            pollfd ready = {fd_, POLLIN, 0};
            poll(&ready, 1, -1);
        } else if (count < 0 && errno != EINTR) {
            return fail_errno("reading the stream failed");
        }
        if (count > 0) done += static_cast<size_t>(count);
    }
    if (checksum_) checksum_->add(std::as_bytes(std::span(ret_bytes, done)));
    return done;
}

Result<HeldStream> HeldStream::read_to_end(StreamReader& stream, const TransferProgress& progress) {
    HeldStream held;
    std::string& memory = held.memory_;
    // Grows with the stream, so that a short stream takes little memory.
    for (size_t bytes = kChunkBytes; bytes == kChunkBytes && memory.size() < kHeldBytes;) {
        const size_t before = memory.size();
        memory.resize(before + kChunkBytes);
        bytes = TRY(stream.read(memory.data() + before, kChunkBytes));
        memory.resize(before + bytes);
        TRY(progress.moved(memory.size(), 0));
    }
    if (memory.size() >= kHeldBytes) TRY(held.move_to_file(stream, progress));
    return held;
}

Status HeldStream::move_to_file(StreamReader& stream, const TransferProgress& progress) {
    const auto folder = folder_for_streams();
    file_ = TRY(open_nameless_file(folder, memory_.size()));
    while (!memory_.empty()) {
        if (auto written = write_whole(file_.get(), memory_); !written)
            return folder_failure(folder, written.error().code, file_bytes_);
        file_bytes_ += memory_.size();
        memory_.resize(kChunkBytes);
        memory_.resize(TRY(stream.read(memory_.data(), kChunkBytes)));
        TRY(progress.moved(file_bytes_ + memory_.size(), 0));
    }
    memory_.shrink_to_fit();
    return {};
}

Result<uint32_t> HeldStream::copy_to(gshm_object& object, TransferProgress& progress) const {
    const uint64_t size = size_bytes();
    if (file_) {
        const auto options = progress.for_transfer();
        return TRY(transfer(object, GSHM_IO_READ, {0, file_.get(), 0, size}, options)).path | GSHM_PATH_STREAM;
    }
    for (size_t offset = 0; offset < memory_.size(); offset += kChunkBytes) {
        const auto chunk = std::string_view(memory_).substr(offset, kChunkBytes);
        TRY(copy_in(object, offset, chunk));
        TRY(progress.moved(offset + chunk.size(), size));
    }
    return size > 0 ? uint32_t{GSHM_PATH_STREAM} : 0;
}

Status copy_stream(StreamReader& stream, gshm_object& object, const TransferProgress& progress) {
    const uint64_t size = gshm_size(&object);
    std::string chunk(kChunkBytes, '\0');
    uint64_t done = 0;
    for (size_t bytes = chunk.size(); bytes == chunk.size();) {
        bytes = TRY(stream.read(chunk.data(), chunk.size()));
        if (bytes > size - done) return fail(EFBIG, "the stream has more than the {} bytes expected", size);
        TRY(copy_in(object, done, {chunk.data(), bytes}));
        done += bytes;
        TRY(progress.moved(done, size));
    }
    if (done < size) return fail(ENODATA, "the stream ended after {} of the {} bytes expected", done, size);
    return {};
}

}  // namespace gshm::core::client
