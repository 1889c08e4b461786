// Requests through io_uring (Linux 6.14). The kernel has a queue for each processor. It passes a request to the queue
// of the sender's processor, to the entry that became free last. An entry takes no further request before it has
// answered one, so each entry has a thread of its own, and a thread that waits does not block the others.
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

// One entry of one queue. Except for create(), only the thread that serves it calls it.
class UringEntry final : public Channel {
public:
    // The first page of the memory is for the header, the rest for payload.
    static Result<std::unique_ptr<UringEntry>> create(int fd, uint16_t queue, std::span<std::byte> memory);
    ~UringEntry() override;

    uint16_t queue() const { return queue_; }
    // Registers the entry. The kernel uses no entry before all queues have one. The thread is bound to the queue's
    // processor.
    Status enroll();
    // Waits for a request. Polls for `awake` before it sleeps. False: no more requests.
    bool next(std::chrono::microseconds awake, const std::atomic<bool>& stopping);
    // The request that next() has waited for.
    Call take();

    // The answer goes to the kernel with the following call of next().
    void send(std::span<const iovec> parts) override;

private:
    UringEntry(int fd, uint16_t queue, std::span<std::byte> memory);
    UringHeader& header() const { return *reinterpret_cast<UringHeader*>(memory_.data()); }
    void prepare(uint32_t command, uint64_t commit_id);
    // The next completion, if there is one: 0 for a request, or an error.
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
    // payload_bytes is the most that a payload has.
    static Result<std::unique_ptr<Uring>> create(Backend& backend, int fd, size_t payload_bytes);

    size_t size() const { return entries_.size(); }
    UringEntry& entry(size_t index) { return *entries_[index]; }

private:
    Uring(Backend& backend, size_t bytes) : memory_(backend, bytes) {}

    Pinned memory_;
    std::vector<std::unique_ptr<UringEntry>> entries_;
};

}  // namespace gshm::core::fuse
