// Threads that copy the chunks of several files at once, each with a buffer that GPUs may copy to and from directly.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/worker.h"
#include "device/pinned_memory.h"
#include "snapshot/block_file.h"
#include "snapshot/compress.h"

namespace gshm::core {

class TierLanes {
public:
    // What a step has for itself.
    struct Lane {
        std::span<std::byte> raw;          // a chunk
        std::optional<BlockBuffer> frame;  // a compressed chunk; none before the first one
        Compressor compressor;
        Decompressor decompressor;
    };
    using Step = std::function<Status(uint64_t chunk, Lane& lane)>;

    // `level`: of the compressor.
    explicit TierLanes(int level) : level_(level) {}

    // Calls `step` for the chunks [first, first + count), in order, many at a time. Returns when none is under way, with
    // the first error; no further one begins after that. Runs of several callers take turns chunk by chunk.
    Status run(uint64_t first, uint64_t count, const Step& step) EXCLUDES(mutex_);
    Status pin(Device& device) EXCLUDES(mutex_);

private:
    struct Run {
        const Step& step;
        uint64_t next;
        uint64_t end;
        unsigned tasks = 0;  // submitted and not complete
        Status status = {};
        std::condition_variable done = {};
    };
    Status start() REQUIRES(mutex_);
    void take_turn(Run& run) EXCLUDES(mutex_);

    const int level_;
    Mutex mutex_;
    PinnedMemory memory_;
    std::vector<std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);
    std::vector<Lane*> free_ GUARDED_BY(mutex_);  // as many as there are idle threads
    std::unique_ptr<Worker> worker_;              // null: no run yet. Last: its threads use the rest
};

}  // namespace gshm::core
