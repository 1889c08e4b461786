#include "io/page_cache.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gshm::core::io {
namespace {

// cachestat(2), Linux 6.5; not yet in the C library.
constexpr long kCachestat = 451;
struct Range {
    uint64_t offset;
    uint64_t bytes;
};
struct Pages {
    uint64_t cached;
    uint64_t dirty;
    uint64_t in_writeback;
    uint64_t evicted;
    uint64_t recently_evicted;
};

// If the kernel does not tell (too old, or a file that this process may not write): a byte that can be read without
// blocking is cached.
bool can_read_at_once(int fd, uint64_t offset) {
    char byte = 0;
    iovec into = {&byte, 1};
    return preadv2(fd, &into, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

}  // namespace

bool is_in_page_cache(int fd, uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return false;
    Range range = {offset, bytes};
    Pages pages = {};
    if (syscall(kCachestat, fd, &range, &pages, 0) == 0) {
        const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        const uint64_t all = (offset + bytes - 1) / page - offset / page + 1;
        return pages.cached * 4 >= all * 3;
    }
    return can_read_at_once(fd, offset) && can_read_at_once(fd, offset + bytes / 2) &&
           can_read_at_once(fd, offset + bytes - 1);
}

}  // namespace gshm::core::io
