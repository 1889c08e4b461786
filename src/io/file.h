// An open file for the engine: permitted operations, and the best path. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "base/result.h"

namespace gshm::core::io {

class File {
public:
    enum class Accept { any, stored };  // stored: no files of kernel interfaces
    // Takes ownership of the descriptor, but not on failure: closing it may block. EINVAL unless it is a regular file or
    // a block device, EBADF if it can be neither read nor written, EOPNOTSUPP if it is not accepted. The file may be
    // opened again, with the rights of the calling thread.
    static Result<std::shared_ptr<File>> create(UniqueFd&& fd, Accept accept = Accept::any);

    bool is_readable() const { return readable_; }
    bool is_writable() const { return writable_; }
    uint64_t size() const;  // current

    // ---- For the engine ----

    // Through the page cache.
    int fd() const { return fd_.get(); }
    // Bypasses the page cache: another description of the same file, since the owner of the first may be using it. -1
    // if the file system refuses. Offsets and sizes must be multiples of alignment(), addresses of memory_alignment().
    int direct_fd() const { return direct_works_.load(std::memory_order_relaxed) ? direct_fd_.get() : -1; }
    // Both are powers of two, the first at least a page, so that cached and direct I/O never share a page.
    uint32_t alignment() const { return alignment_; }
    uint32_t memory_alignment() const { return memory_alignment_; }
    // The file system refused direct I/O after all.
    void give_up_direct() { direct_works_.store(false, std::memory_order_relaxed); }

    // Whether most of these bytes are in the page cache. Costs a system call.
    bool is_cached(uint64_t offset, uint64_t bytes) const;
    // The same for small requests: an estimate for the whole file, renewed from time to time.
    bool is_mostly_cached(uint64_t offset, uint64_t bytes) {
        const uint64_t cost = bytes + kSmallRequestCost;
        const uint64_t left = answer_lasts_.load(std::memory_order_relaxed);
        if (left < cost) return look_again(offset);
        answer_lasts_.store(left - cost, std::memory_order_relaxed);
        return mostly_cached_.load(std::memory_order_relaxed);
    }
    // The last known size; a request that ends below it needs no check.
    uint64_t known_size() const { return known_size_.load(std::memory_order_relaxed); }
    // Queries to the file system may block, contrary to the kernel's promise: FUSE.
    bool may_not_answer() const { return may_not_answer_; }
    // Files of size 0 may have contents: those of /proc do.
    bool has_size() const { return has_size_; }
    bool is_sparse() const { return sparse_.load(std::memory_order_relaxed); }

    // The data or hole at `offset` of a readable file, up to the end of the file.
    struct Stretch {
        uint64_t end;
        bool is_hole;
    };
    Stretch stretch_at(uint64_t offset) const;

    // Identifies the file system; measurements apply to all its files.
    uint64_t place() const { return place_; }
    // Data attached to the file, made on the first call and destroyed before the descriptors.
    std::shared_ptr<void> attachment(const std::function<std::shared_ptr<void>()>& make);

private:
    // The estimate is used for 4096 small requests or 64 MiB.
    static constexpr uint64_t kAnswerLasts = uint64_t{64} << 20;
    static constexpr uint64_t kSmallRequestCost = kAnswerLasts / 4096;

    File(UniqueFd fd, bool readable, bool writable, bool is_block, uint64_t place)
        : fd_(std::move(fd)), readable_(readable), writable_(writable), is_block_(is_block), place_(place) {}
    void find_direct();
    bool look_again(uint64_t offset);

    UniqueFd fd_;
    UniqueFd direct_fd_;
    UniqueFd seek_fd_;  // a description with a file position of its own; empty if not available
    const bool readable_;
    const bool writable_;
    const bool is_block_;
    const uint64_t place_;
    bool has_size_ = true;
    bool may_not_answer_ = false;
    uint32_t alignment_ = 4096;
    uint32_t memory_alignment_ = 4096;
    std::atomic<bool> direct_works_{false};
    std::atomic<bool> mostly_cached_{false};
    std::atomic<uint64_t> answer_lasts_{0};
    mutable std::atomic<uint64_t> known_size_{0};
    mutable std::atomic<bool> sparse_{false};
    std::mutex attachment_mutex_;  // guards the next two
    bool has_attachment_ = false;
    std::shared_ptr<void> attachment_;
};

}  // namespace gshm::core::io
