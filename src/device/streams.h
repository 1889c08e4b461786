// The streams of a device, which execute work in order, and marks in them. Users of memory learn from marks when
// earlier work has finished with it. Devices without streams are synchronous.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace gshm::core {

// Streams are identified by the program's handle (on CUDA a CUstream; null is the legacy default stream). Safe from any
// thread.
class Streams {
public:
    using Mark = void*;

    virtual ~Streams() = default;

    // A number that no other stream ever has, even if the handle is reused. EINVAL: no such stream.
    virtual Result<uint64_t> identify(void* stream) = 0;
    // A mark after the work that is on the stream now.
    virtual Result<Mark> record(void* stream) = 0;
    // The same with an existing mark, which moves to this place.
    virtual Status record(void* stream, Mark mark) = 0;
    // The work before the mark is complete.
    virtual bool is_passed(Mark mark) = 0;
    // Later work on the stream waits for the mark. Does not block.
    virtual Status follow(void* stream, Mark mark) = 0;
    // Blocks until the mark is passed.
    virtual Status wait(Mark mark) = 0;
    // The mark is no longer needed.
    virtual void drop(Mark mark) = 0;

    // ---- between processes, by a word of shared, registered memory ----
    // The word gets the value when all work on the stream is complete and globally visible.
    virtual Status signal(void* stream, std::atomic<uint64_t>& word, uint64_t value) = 0;
    // Later work on the stream begins when the word has at least the value.
    virtual Status hold(void* stream, std::atomic<uint64_t>& word, uint64_t value) = 0;
};

}  // namespace gshm::core
