// The engine's interface to the kernel: io_uring, threads, or a test double. For the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/file_rights.h"
#include "base/result.h"

namespace gshm::core::io {

struct Request {
    bool is_write = false;
    bool in_parallel = false;  // a long copy in the kernel, or a call that may block: better done by a separate thread
    int fd = -1;
    std::byte* memory = nullptr;
    uint32_t bytes = 0;
    uint64_t offset = 0;
    uint64_t tag = 0;  // even
};

struct Event {
    uint64_t tag = 0;
    int32_t result = 0;  // as of read(2) and write(2), or a negative errno; meaningless for a watched eventfd
};

class Queue {
public:
    virtual ~Queue() = default;

    // At most as many as the depth of the queue. Their memory and descriptors must stay valid until their events.
    virtual void submit(const Request& request) = 0;
    // An event with this tag (odd and unique) for every write to the eventfd from now on, and for an earlier one that
    // was not read. The eventfd need not be read. After unwatch() only events already in flight arrive, and the
    // descriptor may be closed.
    virtual Status watch(int fd, uint64_t tag) = 0;
    virtual void unwatch(int fd, uint64_t tag) = 0;
    // Submits requests and takes events; with `block` it sleeps until there is one.
    virtual size_t wait(std::span<Event> events, bool block) = 0;
    virtual bool is_uring() const = 0;
};

// Requests are made with the rights, or without any with those of the process. Called by the thread that uses the queue.
// The first gives EPERM, ENOSYS etc. if io_uring is not permitted or too old, both EPERM if the rights cannot be taken.
Result<std::unique_ptr<Queue>> make_uring_queue(unsigned depth, unsigned threads,
                                                const std::optional<FileRights>& rights = {});
Result<std::unique_ptr<Queue>> make_thread_queue(unsigned threads, const std::optional<FileRights>& rights = {});

}  // namespace gshm::core::io
