// Counters that many threads increase and one reads now and then. Each thread increases a block of its own, with an
// ordinary addition: no shared cache line, no locked instruction. They count for the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace gshm::core {

// Increased by one thread at a time, read by any.
using Count = std::atomic<uint64_t>;

inline void increase(Count& count, uint64_t by = 1) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// One set of blocks for each type. The block of a thread that has ended keeps its counts, and is the next thread's.
template <typename Block>
class ThreadBlocks {
public:
    // That of the calling thread.
    static Block& mine() { return *mine_.block; }

    static void for_each(auto&& look) {
        All& all = blocks();
        MutexLock lock(all.mutex);
        for (const auto& block : all.made) look(static_cast<const Block&>(*block));
    }

private:
    struct All {
        Mutex mutex;
        std::vector<std::unique_ptr<Block>> made GUARDED_BY(mutex);
        std::vector<Block*> free GUARDED_BY(mutex);
    };
    // Never destroyed: threads may end after static objects.
    static All& blocks() {
        static All& all = *new All;
        return all;
    }

    struct Mine {
        Mine() {
            All& all = blocks();
            MutexLock lock(all.mutex);
            if (all.free.empty()) {
                all.made.push_back(std::make_unique<Block>());
                all.free.push_back(all.made.back().get());
            }
            block = all.free.back();
            all.free.pop_back();
        }
        ~Mine() {
            All& all = blocks();
            MutexLock lock(all.mutex);
            all.free.push_back(block);
        }
        Mine(const Mine&) = delete;
        Mine& operator=(const Mine&) = delete;
        Block* block;
    };
    static inline thread_local Mine mine_;
};

}  // namespace gshm::core
