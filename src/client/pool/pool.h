// Memory of one device in pieces of any size, cut from slabs. It knows neither daemon nor driver, but where slabs come from
// and the order of the device's streams: what was freed in a stream's order is used again in that stream at once, and in
// another after it was told to wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/pool/blocks.h"
#include "device/streams.h"

namespace gshm::core::client {

// Where slabs come from and go to. Called by any thread, without the pool's lock; must not throw.
class SlabSource {
public:
    virtual ~SlabSource() = default;
    // The address of so many bytes, a multiple of the granularity. ENOSPC: the device is full.
    virtual Result<uint64_t> make(uint64_t bytes) = 0;
    // An error: it stays the pool's.
    virtual Status give_back(uint64_t address) = 0;
};

struct PoolSlab {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t used_bytes = 0;
    PoolBlock* first = nullptr;
    std::vector<uint64_t> starts;  // a bit for each unit, set where a used block begins
};

// A stream, and what was freed in its order and may not be over yet.
struct PoolLane {
    struct Marked {
        uint64_t turn;
        Streams::Mark mark;
    };
    uint64_t turn = 0;         // of the last free
    std::deque<Marked> marks;  // not known to be passed
    PoolBins free;
    PoolBlock* first = nullptr;  // of the free ones, by turn
    PoolBlock* last = nullptr;
};

class Pool {
public:
    struct Options {
        uint64_t granularity_bytes = 0;  // slabs are multiples of it
        uint64_t slab_bytes = 0;         // at least; they grow with the pool
        uint64_t limit_bytes = 0;        // of all slabs; 0: none
    };
    struct Stats {
        uint64_t reserved_bytes = 0;  // in slabs
        uint64_t used_bytes = 0;
        uint64_t peak_used_bytes = 0;
        uint64_t allocations = 0;  // now
        uint64_t slabs = 0;
        uint64_t waits = 0;  // so many times a stream was told to wait for another
    };
    struct Place {
        uint64_t slab = 0;    // its address
        uint64_t offset = 0;  // in it
        uint64_t bytes = 0;   // to the end of the allocation
    };
    static constexpr uint64_t kAlignment = PoolBins::kUnit;
    static constexpr uint64_t kMostAlignment = uint64_t{1} << 30;
    // For a stream: nobody is, or was, at work with it.
    static inline void* const kNoStream = reinterpret_cast<void*>(~uintptr_t{0});

    // The source outlives the pool. streams null: there are none.
    Pool(const Options& options, SlabSource& source, std::unique_ptr<Streams> streams);
    // Waits for what was freed; what was not freed goes as well.
    ~Pool();

    // Null for 0 bytes. ENOMEM: it would be more than the limit. ENOSPC: the device is full.
    Result<void*> allocate(uint64_t bytes, uint64_t alignment, void* stream) EXCLUDES(mutex_);
    // bytes as they were asked for; 0: not known. EINVAL, and nothing is changed: it is none of the pool's, or free.
    Status deallocate(void* memory, uint64_t bytes, void* stream) EXCLUDES(mutex_);
    // Gives slabs back that are not in use, when what is under way with them is over, until no more than so much is left.
    Status trim(uint64_t keep_bytes) EXCLUDES(mutex_);
    Stats stats() EXCLUDES(mutex_);
    // Of any address in something that is allocated.
    std::optional<Place> find(const void* memory) EXCLUDES(mutex_);

private:
    // What an allocation wants.
    struct BlockRequest {
        uint64_t bytes = 0;      // rounded up
        uint64_t alignment = 0;
        uint64_t search = 0;     // a block of so many bytes has it, however it lies
        void* stream = nullptr;
        uint64_t lane = 0;
        bool any_stream = false;  // to be used in no particular order, at once
    };

    PoolBlock* find_fit(const BlockRequest& wanted) REQUIRES(mutex_);
    Result<PoolBlock*> find_elsewhere(const BlockRequest& wanted) REQUIRES(mutex_);
    PoolBlock* cut(PoolBlock* block, const BlockRequest& wanted) REQUIRES(mutex_);
    Status try_to_grow(const BlockRequest& wanted) REQUIRES(mutex_);
    // By a slab, or by what could be done without one: look again. Called by one thread at a time.
    Status grow(const BlockRequest& wanted, int* attempts) REQUIRES(mutex_);
    Status add_slab(uint64_t bytes) REQUIRES(mutex_);
    void remove_slab(PoolSlab* slab) REQUIRES(mutex_);
    bool can_go(const PoolSlab& slab) const REQUIRES(mutex_);
    // Lets go of the lock while it asks the source.
    Status give_back(PoolSlab* slab) REQUIRES(mutex_);
    Status give_back_unused(uint64_t keep_bytes) REQUIRES(mutex_);
    void give_back_surplus(PoolSlab* newest) REQUIRES(mutex_);

    PoolLane* find_lane(uint64_t id) REQUIRES(mutex_);
    Status mark(PoolLane& lane, void* stream) REQUIRES(mutex_);
    // Looks which marks are passed; what was freed before them is for everybody.
    void look(PoolLane& lane) REQUIRES(mutex_);
    void look_at_all() REQUIRES(mutex_);
    // Until all marks that there are now are passed. Lets go of the lock meanwhile.
    Status wait_for_all() REQUIRES(mutex_);
    // Free blocks for everybody become those of the lane that they are next to.
    void absorb_neighbours(PoolLane& lane) REQUIRES(mutex_);

    void release(PoolBlock* block, PoolLane* lane, uint64_t turn) REQUIRES(mutex_);
    void list(PoolBlock* block, PoolBlock* before = nullptr) REQUIRES(mutex_);
    void unlist(PoolBlock* block) REQUIRES(mutex_);
    void join(PoolBlock* low, PoolBlock* high) REQUIRES(mutex_);
    PoolBlock* split(PoolBlock* block, uint64_t bytes) REQUIRES(mutex_);

    const Options options_;
    SlabSource& source_;
    const std::unique_ptr<Streams> streams_;

    // Held while streams are told to wait, never while anybody waits.
    Mutex mutex_;
    std::condition_variable grown_;
    bool growing_ GUARDED_BY(mutex_) = false;  // a thread is out for a slab
    bool refused_ GUARDED_BY(mutex_) = false;  // the source took none back when last asked
    PoolBlockStock stock_ GUARDED_BY(mutex_);
    std::map<uint64_t, std::unique_ptr<PoolSlab>> slabs_ GUARDED_BY(mutex_);
    std::unordered_map<uint64_t, PoolBlock*> used_ GUARDED_BY(mutex_);
    std::unordered_map<uint64_t, std::unique_ptr<PoolLane>> lanes_ GUARDED_BY(mutex_);
    PoolBins ready_ GUARDED_BY(mutex_);
    size_t unused_slabs_ GUARDED_BY(mutex_) = 0;
    Stats stats_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
