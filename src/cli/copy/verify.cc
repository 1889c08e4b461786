#include "cli/copy/verify.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <unistd.h>
#include <xxhash.h>

#include <fmt/core.h>

#include "snapshot/block_file.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

// No more than there is to compare: a folder may have thousands of small files.
size_t buffer_bytes(uint64_t size_bytes) {
    const uint64_t blocks = (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    return static_cast<size_t>(std::clamp<uint64_t>(blocks, kBlockBytes, kChunkBytes));
}

// Reads a file past the page cache, which would only give back what it has just been given.
class FreshReader {
public:
    FreshReader(const FilePart& part, uint64_t size_bytes)
        : part_(part), direct_(open_direct(part)), buffer_(buffer_bytes(size_bytes)) {}

    // Fewer than asked for where the file ends.
    std::span<const std::byte> read(uint64_t offset, size_t bytes) {
        size_t done = 0;
        while (done < bytes) {
            // Whole blocks, as such reads must be; what lies beyond is not looked at.
            const bool direct = direct_.get() >= 0 && done % kBlockBytes == 0;
            const size_t wanted = direct ? buffer_.size() - done : bytes - done;
            const ssize_t count = ::pread(direct ? direct_.get() : part_.fd, buffer_.data() + done, wanted,
                                          static_cast<off_t>(part_.offset + offset + done));
            if (count < 0 && errno == EINTR) continue;
            if (count < 0 && errno == EINVAL && direct) {
                direct_.close();  // this file system takes the flag and refuses the reads
                continue;
            }
            if (count < 0) throw Failure::of_errno(part_.path);
            if (count == 0) break;
            done += static_cast<size_t>(count);
        }
        return {buffer_.data(), std::min(done, bytes)};
    }

private:
    static int open_direct(const FilePart& part) {
        if (part.offset % kBlockBytes != 0) return -1;
        return ::open(fmt::format("/proc/self/fd/{}", part.fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
    }

    const FilePart& part_;
    FileDescriptor direct_;
    BlockBuffer buffer_;
};

Failure difference(const std::string& name, const std::string& other, const std::string& where) {
    return {EIO, fmt::format("verification failed: {} and {} differ{}", printable(name), printable(other), where),
            "if nobody was writing to them meanwhile, memory or disk is damaged"};
}

// Calls look(offset, bytes) for all of the object's bytes, in order.
template <typename Look>
void read_back(gshm_object* object, const std::string& name, CopyWatch& watch, Look look) {
    const uint64_t size = gshm_size(object);
    const BlockBuffer buffer(buffer_bytes(size));
    for (uint64_t offset = 0; offset < size;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(buffer.size(), size - offset));
        check(gshm_copy_out(object, offset, buffer.data(), bytes), name);
        look(offset, std::span<const std::byte>(buffer.data(), bytes));
        offset += bytes;
        watch.compared(size, offset);
    }
}

}  // namespace

void compare_with_file(gshm_object* object, const std::string& name, const FilePart& part, CopyWatch& watch) {
    FreshReader reader(part, gshm_size(object));
    read_back(object, name, watch, [&](uint64_t offset, std::span<const std::byte> bytes) {
        const auto other = reader.read(offset, bytes.size());
        // The library's own is much faster, but does not say where.
        if (bytes.size() == other.size() && memcmp(bytes.data(), other.data(), bytes.size()) == 0) return;
        const auto differs = std::ranges::mismatch(bytes, other);
        if (differs.in1 == bytes.end()) return;
        const uint64_t place = offset + static_cast<uint64_t>(differs.in1 - bytes.begin());
        throw difference(name, part.path,
                         differs.in2 == other.end() ? fmt::format(": the file ends at byte {}", place)
                                                    : fmt::format(" at byte {}", place));
    });
}

StreamChecksum::StreamChecksum() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
}

void StreamChecksum::Free::operator()(XXH3_state_s* state) const {
    XXH3_freeState(state);
}

void StreamChecksum::add(std::span<const char> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

void StreamChecksum::compare_with(gshm_object* object, const std::string& name, const std::string& source,
                                  CopyWatch& watch) const {
    StreamChecksum other;
    read_back(object, name, watch, [&](uint64_t, std::span<const std::byte> bytes) {
        other.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    });
    if (!XXH128_isEqual(XXH3_128bits_digest(state_.get()), XXH3_128bits_digest(other.state_.get())))
        throw difference(name, source, "");
}

}  // namespace gshm::cli
