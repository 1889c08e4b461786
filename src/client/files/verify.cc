#include "client/files/verify.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fd.h"
#include "base/size.h"

namespace gshm::core::client {
namespace {

constexpr size_t kBlockBytes = 4096;
constexpr size_t kChunkBytes = size_t{4} << 20;

// Aligned for direct I/O, and no larger than the object: a folder may have thousands of small files.
class Buffer {
public:
    explicit Buffer(uint64_t object_bytes)
        : size_(
              static_cast<size_t>(std::clamp<uint64_t>(align_up(object_bytes, kBlockBytes), kBlockBytes, kChunkBytes))),
          data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size_))) {
        if (!data_) throw std::bad_alloc();
    }
    std::byte* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    struct Free {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    size_t size_;
    std::unique_ptr<std::byte, Free> data_;
};

// Reads a file without the page cache, which would only return the bytes just written to it.
class FreshReader {
public:
    FreshReader(const FilePart& part, uint64_t bytes)
        : part_(part), direct_(UniqueFd::adopt(open_direct(part))), buffer_(bytes) {}

    // Fewer bytes than requested at the end of the file.
    Result<std::span<const std::byte>> read(uint64_t offset, size_t bytes) {
        size_t done = 0;
        while (done < bytes) {
            // Direct reads need whole blocks. The rest of the last block is ignored.
            const bool direct = direct_ && done % kBlockBytes == 0;
            const size_t wanted = direct ? buffer_.size() - done : bytes - done;
            const ssize_t count = pread(direct ? direct_.get() : part_.fd, buffer_.data() + done, wanted,
                                        static_cast<off_t>(part_.offset + offset + done));
            if (count < 0 && errno == EINTR) continue;
            if (count < 0 && errno == EINVAL && direct) {
                direct_.reset();  // this file system accepts O_DIRECT but rejects the reads
                continue;
            }
            if (count < 0) return fail_errno(part_.path.c_str());
            if (count == 0) break;
            done += static_cast<size_t>(count);
        }
        return std::span<const std::byte>(buffer_.data(), std::min(done, bytes));
    }

private:
    static int open_direct(const FilePart& part) {
        if (part.offset % kBlockBytes != 0) return -1;
        return open(fmt::format("/proc/self/fd/{}", part.fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
    }

    const FilePart& part_;
    UniqueFd direct_;
    Buffer buffer_;
};

std::unexpected<Error> difference(const std::string& name, const std::string& other, const std::string& where) {
    return fail(EBADMSG, "verification failed: {} and {} differ{}", name, other, where);
}

// Calls look(offset, bytes) for all bytes of the object, in order.
template <typename Look>
Status read_back(gshm_object& object, const TransferProgress& progress, Look look) {
    const uint64_t size = gshm_size(&object);
    const Buffer buffer(size);
    for (uint64_t offset = 0; offset < size;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(buffer.size(), size - offset));
        TRY(as_status(gshm_copy_out(&object, offset, buffer.data(), bytes)));
        TRY(look(offset, std::span<const std::byte>(buffer.data(), bytes)));
        offset += bytes;
        TRY(progress.compared(offset, size));
    }
    return {};
}

}  // namespace

Status compare_with_file(gshm_object& object, const std::string& name, const FilePart& part,
                         const TransferProgress& progress) {
    FreshReader reader(part, gshm_size(&object));
    return read_back(object, progress, [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
        const auto other = TRY(reader.read(offset, bytes.size()));
        // memcmp() is much faster, but does not return the position.
        if (bytes.size() == other.size() && memcmp(bytes.data(), other.data(), bytes.size()) == 0) return {};
        const auto differs = std::ranges::mismatch(bytes, other);
        const uint64_t place = offset + static_cast<uint64_t>(differs.in1 - bytes.begin());
        return difference(name, part.path,
                          differs.in2 == other.end() ? fmt::format(": the file ends at byte {}", place)
                                                     : fmt::format(" at byte {}", place));
    });
}

struct StreamChecksum::State {
    XXH3_state_t sum;
};

StreamChecksum::StreamChecksum() : state_(new State) {
    XXH3_INITSTATE(&state_->sum);
    XXH3_128bits_reset(&state_->sum);
}

void StreamChecksum::Free::operator()(State* state) const {
    delete state;
}

void StreamChecksum::add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(&state_->sum, bytes.data(), bytes.size());
}

Status StreamChecksum::compare_with(gshm_object& object, const std::string& name,
                                    const TransferProgress& progress) const {
    StreamChecksum other;
    TRY(read_back(object, progress, [&](uint64_t, std::span<const std::byte> bytes) -> Status {
        other.add(bytes);
        return {};
    }));
    if (XXH128_isEqual(XXH3_128bits_digest(&state_->sum), XXH3_128bits_digest(&other.state_->sum))) return {};
    return difference(name, "the stream", "");
}

}  // namespace gshm::core::client
