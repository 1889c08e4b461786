#include "client/load/gather.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace gshm::core::client {
namespace {

constexpr unsigned kThreads = 4;
constexpr uint64_t kThreadBytes = uint64_t{1} << 20;  // fewer are not worth a thread

// 0 or an errno.
int read_rows(const GatherBuffers::Rows& rows, std::byte* into) {
    for (uint64_t row = 0; row < rows.count; ++row) {
        for (uint64_t done = 0; done < rows.bytes;) {
            const auto at = static_cast<off_t>(rows.offset + row * rows.stride + done);
            const ssize_t taken = pread(rows.fd, into + row * rows.bytes + done, rows.bytes - done, at);
            if (taken < 0 && errno != EINTR) return errno;
            if (taken == 0) return ENODATA;
            if (taken > 0) done += static_cast<uint64_t>(taken);
        }
    }
    return 0;
}

}  // namespace

Result<GatherBuffers> GatherBuffers::create() {
    GatherBuffers buffers;
    buffers.file_ = UniqueFd::adopt(memfd_create("gshm-gather", MFD_CLOEXEC));
    if (!buffers.file_) return fail_errno("memfd_create");
    // All pages now: a lack of memory is an error here, and not SIGBUS later.
    if (const int code = posix_fallocate(buffers.file_.get(), 0, kCount * kBytes); code != 0) {
        return fail_errno("no memory to gather slices", code);
    }
    buffers.mapping_ = TRY(Mapping::create(buffers.file_.get(), kCount * kBytes, true));
    for (uint32_t i = kCount; i-- > 0;) buffers.free_.push_back(i);
    return buffers;
}

std::optional<uint32_t> GatherBuffers::take() {
    if (free_.empty()) return std::nullopt;
    const uint32_t buffer = free_.back();
    free_.pop_back();
    return buffer;
}

Status GatherBuffers::fill(uint32_t buffer, const Rows& rows) {
    std::byte* into = mapping_.data() + offset(buffer);
    const uint64_t parts = std::clamp<uint64_t>(rows.bytes * rows.count / kThreadBytes, 1, kThreads);
    const uint64_t share = (rows.count + parts - 1) / parts;
    std::vector<int> codes(parts);
    const auto read_part = [&](uint64_t part) {
        Rows own = rows;
        const uint64_t first = std::min(part * share, rows.count);
        own.offset += first * rows.stride;
        own.count = std::min(share, rows.count - first);
        codes[part] = read_rows(own, into + first * rows.bytes);
    };
    std::vector<std::jthread> threads;
    threads.reserve(parts);
    for (uint64_t part = 1; part < parts; ++part) {
        try {
            threads.emplace_back(read_part, part);
        } catch (const std::system_error&) {  // too many threads
            read_part(part);
        }
    }
    read_part(0);
    threads.clear();  // waits
    const auto failed = std::ranges::find_if(codes, [](int code) { return code != 0; });
    return failed == codes.end() ? Status{} : fail_errno("read", *failed);
}

}  // namespace gshm::core::client
