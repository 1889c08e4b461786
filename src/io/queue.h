// Where the engine's requests to the kernel go, and come back from: io_uring, threads, or a test's own.
// For one thread, the engine's, but for what a queue does in threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace gshm::io {

struct Request {
    bool is_write = false;
    bool in_parallel = false;  // it is a long copy in the kernel, or may wait there: better done by a thread of its own
    int fd = -1;
    std::byte* memory = nullptr;
    uint32_t bytes = 0;
    uint64_t offset = 0;
    uint64_t tag = 0;  // even
};

struct Event {
    uint64_t tag = 0;
    int32_t result = 0;  // as read(2) and write(2) return it, or the negative errno; of a watched eventfd of no meaning
};

class Queue {
public:
    virtual ~Queue() = default;

    // At most as many at once as the depth it was made for; what they name stays until their events have come.
    virtual void submit(const Request& request) = 0;
    // An event with this tag, which is odd and was not used before, whenever the eventfd is written to from now on, or has been already. Nobody
    // needs to read it. After unwatch() at most the events that were under way come, and the descriptor may be closed.
    virtual Status watch(int fd, uint64_t tag) = 0;
    virtual void unwatch(int fd, uint64_t tag) = 0;
    // Hands over what was submitted and takes events; sleeps until there is one if `block`.
    virtual size_t wait(std::span<Event> events, bool block) = 0;
    virtual bool is_uring() const = 0;
};

// EPERM, ENOSYS and their like where this machine, or this container, has no io_uring, or one that is too old. To be
// called by the thread that will use it.
Result<std::unique_ptr<Queue>> make_uring_queue(unsigned depth, unsigned threads);
Result<std::unique_ptr<Queue>> make_thread_queue(unsigned threads);

}  // namespace gshm::io
