// The queues of a device (on CUDA: streams), whose work is done in order, and marks in them. Who reuses memory learns
// from these when those before are done with it. A device that has none does everything at once.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace gshm {

// Queues are named by what the program calls them (on CUDA a CUstream; null is the legacy default stream). Safe from any
// thread.
class Queues {
public:
    using Mark = void*;

    virtual ~Queues() = default;

    // A number that no other queue ever has, whatever becomes of the handle. EINVAL: there is no such queue.
    virtual Result<uint64_t> identify(void* queue) = 0;
    // A mark after what is on the queue now.
    virtual Result<Mark> record(void* queue) = 0;
    // The same, with a mark that there is already: from now on it means this place.
    virtual Status record(void* queue, Mark mark) = 0;
    // What comes before the mark is done.
    virtual bool is_passed(Mark mark) = 0;
    // What is put on the queue from now on comes after the mark. Does not wait itself.
    virtual Status follow(void* queue, Mark mark) = 0;
    // Waits until the mark is passed.
    virtual Status wait(Mark mark) = 0;
    // Nobody needs it any more.
    virtual void drop(Mark mark) = 0;

    // ---- between processes, by a word of registered memory that they share ----
    // The word gets the value when all that is on the queue is done and can be seen by everybody.
    virtual Status signal(void* queue, std::atomic<uint64_t>& word, uint64_t value) = 0;
    // What is put on the queue from now on begins when the word has the value, or a greater one.
    virtual Status hold(void* queue, std::atomic<uint64_t>& word, uint64_t value) = 0;
};

}  // namespace gshm
