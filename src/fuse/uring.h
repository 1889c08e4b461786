// Requests through io_uring (Linux 6.14). The kernel has a queue for each processor, and hands a request to an entry
// of the queue of whoever sends it, the latest to have become free. What an entry has taken is answered before it
// takes another, so each has a thread of its own: whatever that waits for, others are free.
#pragma once

#include <atomic>
#include <chrono>
#include <liburing.h>
#include <memory>
#include <optional>
#include <vector>

#include "fuse/call.h"
#include "fuse/pinned.h"

namespace gshm::core::fuse {

// One entry of one queue. All but create() is for the one thread that serves it.
class UringEntry final : public Channel {
public:
    // The first page of the memory is for the header, the rest for payload.
    static Result<std::unique_ptr<UringEntry>> create(int fd, uint16_t queue, std::span<std::byte> memory);
    ~UringEntry() override;

    uint16_t queue() const { return queue_; }
    // Afterwards the kernel may use it; it uses none before all queues have one. The thread stays on the queue's
    // processor.
    Status enroll();
    // Waits for a request, after having looked for it for a while before sleeping. False: there will be none any more.
    bool next(std::chrono::microseconds awake, const std::atomic<bool>& stopping);
    // The request that next() has waited for.
    Call take();

    // The answer goes to the kernel with the next next().
    void send(std::span<const iovec> parts) override;

private:
    UringEntry(int fd, uint16_t queue, std::span<std::byte> memory);
    UringHeader& header() const { return *reinterpret_cast<UringHeader*>(memory_.data()); }
    void prepare(uint32_t command, uint64_t commit_id);
    // What has come, if anything has: 0 for a request, or an error.
    std::optional<int> completed();

    const int fd_;
    const uint16_t queue_;
    const std::span<std::byte> memory_;
    const std::span<std::byte> payload_;
    const iovec parts_[2];
    io_uring uring_ = {};
};

class Uring {
public:
    // Payloads of so many bytes at most.
    static Result<std::unique_ptr<Uring>> create(Backend& backend, int fd, size_t payload_bytes);

    size_t size() const { return entries_.size(); }
    UringEntry& entry(size_t index) { return *entries_[index]; }

private:
    Uring(Backend& backend, size_t bytes) : memory_(backend, bytes) {}

    Pinned memory_;
    std::vector<std::unique_ptr<UringEntry>> entries_;
};

}  // namespace gshm::core::fuse
