#include "snapshot/block_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

namespace gshm::core {
namespace {

// Reserving in steps of this size keeps files contiguous, even if many are written at once.
constexpr uint64_t kReserveBytes = uint64_t{64} << 20;

Result<UniqueFd> open_direct(const std::string& path, int flags) {
    auto file = open_regular_file(path, flags | O_DIRECT);
    // For example tmpfs before Linux 6.6.
    if (!file && file.error().code == EINVAL) file = open_regular_file(path, flags & ~O_EXCL);
    return file;
}

}  // namespace

Result<UniqueFd> open_regular_file(const std::string& path, int flags, uint64_t* ret_size_bytes) {
    // Without O_NONBLOCK, the open of a FIFO waits for its other end. Regular files ignore the flag.
    auto file = UniqueFd::adopt(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600));
    struct stat info{};
    if (!file || ::fstat(file.get(), &info) != 0) return fail_errno(path.c_str());
    if (!S_ISREG(info.st_mode)) return fail(ENOTSUP, "{} is not a regular file", path);
    if (ret_size_bytes != nullptr) *ret_size_bytes = static_cast<uint64_t>(info.st_size);
    return file;
}

BlockBuffer::BlockBuffer(size_t bytes)
    : size_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes))) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
}

void BlockBuffer::Free::operator()(std::byte* bytes) const {
    std::free(bytes);
}

Result<BlockFile> BlockFile::create(const std::string& path) {
    return BlockFile(path, TRY(open_direct(path, O_WRONLY | O_CREAT | O_EXCL)));
}

Result<BlockFile> BlockFile::open(const std::string& path) {
    return BlockFile(path, TRY(open_direct(path, O_RDONLY)));
}

void BlockFile::make_room(uint64_t end) {
    if (!reserves_ || end <= room_end_) return;
    const uint64_t wanted = std::max(end, room_end_ + kReserveBytes);
    // If the file system does not support it or is nearly full, nothing more is reserved.
    reserves_ = ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(room_end_),
                            static_cast<off_t>(wanted - room_end_)) == 0;
    room_end_ = wanted;
}

Status BlockFile::write(uint64_t offset, std::span<const std::byte> blocks) {
    make_room(offset + blocks.size());
    while (!blocks.empty()) {
        const ssize_t count = ::pwrite(file_.get(), blocks.data(), blocks.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno(path_.c_str());
        // A nearly full disk may accept part of a block. The next attempt reports the error.
        const auto whole = static_cast<size_t>(count) / kBlockBytes * kBlockBytes;
        if (whole == 0) return fail_errno(path_.c_str(), ENOSPC);
        blocks = blocks.subspan(whole);
        offset += whole;
    }
    return {};
}

Result<std::span<std::byte>> BlockFile::read(uint64_t offset, size_t bytes, const BlockBuffer& buffer) const {
    const uint64_t begin = offset / kBlockBytes * kBlockBytes;
    const size_t lead = offset - begin;
    const size_t wanted = std::min((lead + bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes, buffer.size());
    size_t got = 0;
    while (got < wanted) {
        const ssize_t count = ::pread(file_.get(), buffer.data() + got, wanted - got, static_cast<off_t>(begin + got));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno(path_.c_str());
        got += static_cast<size_t>(count);
        if (count == 0 || got % kBlockBytes != 0) break;  // the end
    }
    return std::span(buffer.data() + lead, std::min(bytes, got < lead ? 0 : got - lead));
}

Status BlockFile::finish(uint64_t size_bytes) {
    if (::ftruncate(file_.get(), static_cast<off_t>(size_bytes)) != 0 || ::fdatasync(file_.get()) != 0)
        return fail_errno(path_.c_str());
    if (::close(file_.take()) != 0) return fail_errno(path_.c_str());
    return {};
}

Status sync_folder(const std::string& path) {
    const auto folder = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder || ::fsync(folder.get()) != 0) return fail_errno(path.c_str());
    return {};
}

}  // namespace gshm::core
