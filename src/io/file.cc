#include "io/file.h"

#include <algorithm>
#include <bit>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/kernel_interface.h"
#include "io/page_cache.h"

namespace gshm::core::io {
namespace {

// Opens another description of the file behind a descriptor. -1 if refused.
int reopen(int fd, int flags) {
    return open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags | O_CLOEXEC);
}

}  // namespace

Result<std::shared_ptr<File>> File::create(UniqueFd&& fd, Accept accept) {
    struct stat status = {};
    if (fstat(fd.get(), &status) != 0) return fail_errno("cannot inspect the file");
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
        return fail(EINVAL, "neither a regular file nor a block device");
    }
    if (accept == Accept::stored && is_kernel_interface(fd.get())) {
        return fail(
            EOPNOTSUPP,
            "a file of a kernel interface, such as /proc and /sys: the kernel would check the process that reads "
            "or writes it, so gshmd does not do that for a client");
    }
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0) return fail_errno("cannot inspect the descriptor");
    if ((flags & O_PATH) != 0) return fail(EBADF, "opened with O_PATH: it can be neither read nor written");
    const int mode = flags & O_ACCMODE;
    const bool readable = mode == O_RDONLY || mode == O_RDWR;
    // With O_APPEND every write goes to the end of the file, regardless of its offset.
    const bool writable = (mode == O_WRONLY || mode == O_RDWR) && (flags & O_APPEND) == 0;
    if (!readable && !writable)
        return fail(EBADF, "opened neither for reading nor for writing (O_APPEND does not count)");
    const bool is_block = S_ISBLK(status.st_mode);
    std::shared_ptr<File> file(
        new File(std::move(fd), readable, writable, is_block, is_block ? status.st_rdev : status.st_dev));
    struct statfs system = {};
    file->may_not_answer_ = fstatfs(file->fd(), &system) != 0 || system.f_type == FUSE_SUPER_MAGIC;
    file->has_size_ = file->size() != 0 || status.st_blocks != 0;
    file->find_direct();
    if (file->direct_fd_) return file;
    if (file->is_sparse() && readable) file->seek_fd_ = UniqueFd::adopt(reopen(file->fd(), O_RDONLY));
    return file;
}

void File::find_direct() {
    constexpr uint32_t kPage = 4096;
    struct statx status = {};
    const bool told =
        statx(fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0;
    if (told && status.stx_dio_offset_align == 0) return;  // not supported
    if (told) {
        alignment_ = std::bit_ceil(std::max(kPage, status.stx_dio_offset_align));
        memory_alignment_ = std::bit_ceil(std::max<uint32_t>(status.stx_dio_mem_align, 1));
    }
    const int mode = readable_ && writable_ ? O_RDWR : writable_ ? O_WRONLY : O_RDONLY;
    direct_fd_ = UniqueFd::adopt(reopen(fd(), mode | O_DIRECT));
    direct_works_ = static_cast<bool>(direct_fd_);
}

uint64_t File::size() const {
    uint64_t size = 0;
    if (is_block_) {
        if (ioctl(fd(), BLKGETSIZE64, &size) != 0) size = 0;
    } else {
        struct stat status = {};
        if (fstat(fd(), &status) != 0) return known_size();
        size = static_cast<uint64_t>(status.st_size);
        sparse_.store(static_cast<uint64_t>(status.st_blocks) * 512 < size, std::memory_order_relaxed);
    }
    known_size_.store(size, std::memory_order_relaxed);
    return size;
}

bool File::is_cached(uint64_t offset, uint64_t bytes) const {
    return readable_ && is_in_page_cache(fd(), offset, bytes);
}

// A small file is checked completely, a large one at some random offsets and at the request. Meant for requests all
// over the file: a few cached parts must not draw all requests into the page cache.
bool File::look_again(uint64_t offset) {
    constexpr uint64_t kWhole = uint64_t{16} << 20;
    constexpr uint64_t kPlaces = 8;
    constexpr uint64_t kPlaceBytes = 64 << 10;
    const uint64_t end = size();
    bool cached = false;
    if (end <= kWhole) {
        cached = is_cached(0, end);
    } else {
        // Different offsets each time: on kernels without cachestat, checking one reads it into the page cache.
        unsigned found = 0;
        for (uint64_t i = 0; i < kPlaces; ++i) {
            const uint64_t place = (offset + end / kPlaces * i) % end;
            found += is_cached(place, std::min(kPlaceBytes, end - place)) ? 1 : 0;
        }
        cached = found * 4 >= kPlaces * 3;
    }
    mostly_cached_.store(cached, std::memory_order_relaxed);
    answer_lasts_.store(kAnswerLasts, std::memory_order_relaxed);
    return cached;
}

std::shared_ptr<void> File::attachment(const std::function<std::shared_ptr<void>()>& make) {
    std::lock_guard lock(attachment_mutex_);
    if (!std::exchange(has_attachment_, true)) attachment_ = make();
    return attachment_;
}

File::Stretch File::stretch_at(uint64_t offset) const {
    const uint64_t end = known_size();
    const int fd = direct_fd_ ? direct_fd_.get() : seek_fd_.get();
    if (fd < 0 || offset >= end) return {end, false};
    const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0) return {end, errno == ENXIO};  // no data from here on
    if (static_cast<uint64_t>(data) > offset) return {std::min<uint64_t>(data, end), true};
    const off_t hole = lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
    return {hole < 0 ? end : std::min<uint64_t>(hole, end), false};
}

}  // namespace gshm::core::io
