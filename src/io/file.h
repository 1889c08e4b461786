// An open file as the engine sees it: how it may be read and written, and which way is best. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "base/result.h"

namespace gshm::io {

class File {
public:
    // Takes over the descriptor. EINVAL unless it is a regular file or a block device, EBADF if nothing can be done with it.
    static Result<std::shared_ptr<File>> create(UniqueFd fd);

    bool is_readable() const { return readable_; }
    bool is_writable() const { return writable_; }
    uint64_t size() const;  // now

    // ---- For the engine ----

    // Through the page cache.
    int fd() const { return fd_.get(); }
    // Past the page cache: another description of the same file, since whoever passed the first may be using it. -1 where
    // the file system refuses. Offsets and sizes must be multiples of alignment(), addresses of memory_alignment().
    int direct_fd() const { return direct_works_.load(std::memory_order_relaxed) ? direct_fd_.get() : -1; }
    // Both are powers of two, the first at least a page, so that what goes through the page cache and what goes past it never meet in one page.
    uint32_t alignment() const { return alignment_; }
    uint32_t memory_alignment() const { return memory_alignment_; }
    // The file system has refused after all.
    void give_up_direct() { direct_works_.store(false, std::memory_order_relaxed); }

    // Whether most of these bytes are in the page cache. Costs a system call.
    bool is_cached(uint64_t offset, uint64_t bytes) const;
    // The same for small requests: the answer is for the file as a whole, and is asked for now and then only.
    bool is_mostly_cached(uint64_t offset, uint64_t bytes) {
        const uint64_t cost = bytes + kSmallRequestCost;
        const uint64_t left = answer_lasts_.load(std::memory_order_relaxed);
        if (left < cost) return look_again(offset);
        answer_lasts_.store(left - cost, std::memory_order_relaxed);
        return mostly_cached_.load(std::memory_order_relaxed);
    }
    // The size when it was last asked for; a request that ends below it needs no question.
    uint64_t known_size() const { return known_size_.load(std::memory_order_relaxed); }
    // Whoever asks the file system may wait, though the kernel promises otherwise: FUSE.
    bool may_not_answer() const { return may_not_answer_; }
    // Files whose size is 0 may have content all the same: those of /proc have.
    bool has_size() const { return has_size_; }
    bool is_sparse() const { return sparse_.load(std::memory_order_relaxed); }

    // The stretch at `offset` that is all data or all hole, of a file that is readable; it ends at the end of the file.
    struct Stretch {
        uint64_t end;
        bool is_hole;
    };
    Stretch stretch_at(uint64_t offset) const;

    // Where it is: what was measured there holds for all files of the same place.
    uint64_t place() const { return place_; }
    // Something that goes with the file and is dropped before its descriptors are; made by the first who asks.
    std::shared_ptr<void> attachment(const std::function<std::shared_ptr<void>()>& make);

private:
    // An answer about the page cache lasts for 4096 small requests or 64 MiB.
    static constexpr uint64_t kAnswerLasts = uint64_t{64} << 20;
    static constexpr uint64_t kSmallRequestCost = kAnswerLasts / 4096;

    File(UniqueFd fd, bool readable, bool writable, bool is_block, uint64_t place)
        : fd_(std::move(fd)), readable_(readable), writable_(writable), is_block_(is_block), place_(place) {}
    void find_direct();
    bool look_again(uint64_t offset);

    UniqueFd fd_;
    UniqueFd direct_fd_;
    UniqueFd seek_fd_;  // a description whose offset may be moved; none where it cannot be had
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

}  // namespace gshm::io
