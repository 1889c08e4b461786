#include <algorithm>
#include <liburing.h>
#include <poll.h>
#include <vector>

#include "base/log.h"
#include "io/queue.h"

namespace gshm::core::io {
namespace {

// Tag of completions that are ignored: the end of a watch.
constexpr uint64_t kNobody = 0;

class UringQueue final : public Queue {
public:
    static Result<std::unique_ptr<Queue>> create(unsigned depth, unsigned threads,
                                                 const std::optional<FileRights>& rights) {
        std::unique_ptr<UringQueue> made(new UringQueue);
        TRY(made->open(depth + kSpareEntries));
        // Threads for long copies from the page cache.
        unsigned workers[2] = {threads, 0};
        io_uring_register_iowq_max_workers(&made->ring_, workers);
        io_uring_register_ring_fd(&made->ring_);
        if (rights) TRY(made->use(*rights));
        return made;
    }
    ~UringQueue() override {
        if (is_open_) io_uring_queue_exit(&ring_);
    }

    void submit(const Request& request) override {
        io_uring_sqe* entry = next_entry();
        if (request.is_write) {
            io_uring_prep_write(entry, request.fd, request.memory, request.bytes, request.offset);
        } else {
            io_uring_prep_read(entry, request.fd, request.memory, request.bytes, request.offset);
        }
        if (request.in_parallel) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
        entry->personality = personality_;
        io_uring_sqe_set_data64(entry, request.tag);
        // The disk begins while further requests are prepared.
        if (io_uring_sq_ready(&ring_) >= kRequestsAtOnce) io_uring_submit(&ring_);
    }

    Status watch(int fd, uint64_t tag) override {
        watches_.push_back({fd, tag});
        arm(watches_.back());
        return {};
    }

    void unwatch(int, uint64_t tag) override {
        std::erase_if(watches_, [&](const Watch& watch) { return watch.tag == tag; });
        io_uring_sqe* entry = next_entry();
        io_uring_prep_poll_remove(entry, tag);
        io_uring_sqe_set_data64(entry, kNobody);
        io_uring_submit(&ring_);
    }

    size_t wait(std::span<Event> events, bool block) override {
        if (block) io_uring_submit_and_wait(&ring_, 1);  // errors (EINTR, EAGAIN, EBUSY) are retried
        else io_uring_submit_and_get_events(&ring_);
        size_t taken = 0;
        unsigned seen = 0;
        unsigned head = 0;
        io_uring_cqe* entry = nullptr;
        io_uring_for_each_cqe(&ring_, head, entry) {
            if (taken == events.size()) break;
            ++seen;
            if ((entry->user_data & 1) != 0 && !is_watched(*entry)) continue;
            if (entry->user_data != kNobody) events[taken++] = {entry->user_data, entry->res};
        }
        io_uring_cq_advance(&ring_, seen);
        return taken;
    }

    bool is_uring() const override { return true; }

private:
    struct Watch {
        int fd;
        uint64_t tag;
    };
    static constexpr unsigned kSpareEntries = 32;  // for watches
    static constexpr unsigned kRequestsAtOnce = 8;

    UringQueue() = default;

    Status open(unsigned entries) {
        // One thread submits and completes, so the kernel need not interrupt it. Older kernels support fewer flags.
        // DEFER_TASKRUN was measured: 4 KiB reads are 12 to 18 % slower.
        int result = -EINVAL;
        for (unsigned flags : {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_COOP_TASKRUN, 0U}) {
            io_uring_params parameters = {};
            parameters.flags = flags | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
            parameters.cq_entries = 4 * entries;
            result = io_uring_queue_init_params(entries, &ring_, &parameters);
            if (result == -EINVAL) continue;
            if (result < 0) break;
            is_open_ = true;
            // Multishot polls came with the same kernel, 5.13.
            if ((parameters.features & IORING_FEAT_RSRC_TAGS) == 0)
                return fail(ENOSYS, "this kernel's io_uring is too old");
            return {};
        }
        return fail_errno("io_uring cannot be used", -result);
    }

    // A personality is the rights that a thread has when it is registered. It ends with the queue.
    Status use(const FileRights& rights) {
        const auto borrowed = TRY(BorrowedFileRights::create(rights));
        const int made = io_uring_register_personality(&ring_);
        if (made < 0) return fail_errno("io_uring cannot use the rights of another user", -made);
        personality_ = static_cast<uint16_t>(made);
        return {};
    }

    io_uring_sqe* next_entry() {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        while (entry == nullptr) {
            io_uring_submit(&ring_);
            entry = io_uring_get_sqe(&ring_);
        }
        return entry;
    }

    void arm(const Watch& watch) {
        io_uring_sqe* entry = next_entry();
        io_uring_prep_poll_multishot(entry, watch.fd, POLLIN);
        io_uring_sqe_set_data64(entry, watch.tag);
    }

    // Rearms the watch if the kernel has ended it.
    bool is_watched(const io_uring_cqe& entry) {
        auto watch = std::ranges::find(watches_, entry.user_data, &Watch::tag);
        if (watch == watches_.end()) return false;
        if ((entry.flags & IORING_CQE_F_MORE) == 0) arm(*watch);
        return true;
    }

    io_uring ring_ = {};
    bool is_open_ = false;
    uint16_t personality_ = 0;  // 0: the rights of the engine's thread
    std::vector<Watch> watches_;
};

}  // namespace

Result<std::unique_ptr<Queue>> make_uring_queue(unsigned depth, unsigned threads,
                                                const std::optional<FileRights>& rights) {
    return UringQueue::create(depth, threads, rights);
}

}  // namespace gshm::core::io
