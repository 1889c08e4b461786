// Memory of one device in blocks of any size, cut from slabs. It depends on a source of slabs and on the streams of the
// device, but not on a daemon or a driver. A block that was freed in a stream's order is reused in that stream at once.
// Another stream first waits for that point.
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

// The source of slabs. Called by any thread, without the lock of the pool; must not throw.
class SlabSource {
public:
    virtual ~SlabSource() = default;
    // The address of a slab; bytes is a multiple of the granularity. ENOSPC: the device is full.
    virtual Result<uint64_t> make(uint64_t bytes) = 0;
    // On an error, the pool keeps the slab.
    virtual Status give_back(uint64_t address) = 0;
};

struct PoolSlab {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t used_bytes = 0;
    PoolBlock* first = nullptr;
    std::vector<uint64_t> starts;  // a bit for each unit, set at the start of a used block
    bool retired = false;          // its free blocks are not listed, and never used again
    // Of a retired slab: the lanes, by id, in whose order memory was freed, with the last turn of each.
    std::map<uint64_t, uint64_t> last_turns = {};
};

// A stream, with the blocks that were freed in its order and may still be in use.
struct PoolLane {
    struct Marked {
        uint64_t turn;
        Streams::Mark mark;
    };
    uint64_t id = 0;
    uint64_t turn = 0;         // number of the last free
    uint64_t passed = 0;       // the last turn known to be passed
    std::deque<Marked> marks;  // those not known to be passed
    PoolBins free;
    PoolBlock* first = nullptr;  // free blocks, ordered by turn
    PoolBlock* last = nullptr;
};

class Pool {
public:
    struct Options {
        uint64_t granularity_bytes = 0;  // slabs are multiples of it
        uint64_t slab_bytes = 0;         // the minimum; slabs grow with the pool
        uint64_t limit_bytes = 0;        // of all slabs; 0: no limit
    };
    struct Stats {
        uint64_t reserved_bytes = 0;  // in slabs
        uint64_t used_bytes = 0;
        uint64_t peak_used_bytes = 0;
        uint64_t allocations = 0;  // current number
        uint64_t slabs = 0;
        uint64_t waits = 0;  // how often a stream was made to wait for another
    };
    struct Place {
        uint64_t slab = 0;    // its address
        uint64_t offset = 0;  // in the slab
        uint64_t bytes = 0;   // to the end of the allocation
    };
    static constexpr uint64_t kAlignment = PoolBins::kUnit;
    static constexpr uint64_t kMostAlignment = uint64_t{1} << 30;
    // As a stream: no stream uses, or has used, the memory.
    static inline void* const kNoStream = reinterpret_cast<void*>(~uintptr_t{0});

    // The source outlives the pool. Without streams, `streams` is null.
    Pool(const Options& options, SlabSource& source, std::unique_ptr<Streams> streams);
    // Waits for the freed blocks. Allocated blocks are freed too.
    ~Pool();

    // Null for 0 bytes. ENOMEM: over the limit of the pool. ENOSPC: the device is full.
    Result<void*> allocate(uint64_t bytes, uint64_t alignment, void* stream) EXCLUDES(mutex_);
    // bytes: the allocated size; 0: unknown. EINVAL, without any change: the memory is not from this pool, or is
    // already free.
    Status deallocate(void* memory, uint64_t bytes, void* stream) EXCLUDES(mutex_);
    // Waits for pending work and gives back unused slabs, until at most keep_bytes are left.
    Status trim(uint64_t keep_bytes) EXCLUDES(mutex_);
    // No more memory comes from the slabs that have allocations. Each is given back with its last allocation. The addresses
    // of all such slabs.
    std::vector<uint64_t> retire() EXCLUDES(mutex_);
    Stats stats() EXCLUDES(mutex_);
    // For any address inside of an allocation.
    std::optional<Place> find(const void* memory) EXCLUDES(mutex_);

private:
    // An allocation request.
    struct BlockRequest {
        uint64_t bytes = 0;  // rounded up
        uint64_t alignment = 0;
        uint64_t search = 0;  // a block of this size is large enough at any alignment
        void* stream = nullptr;
        uint64_t lane = 0;
        bool any_stream = false;  // for immediate use, in no stream's order
    };

    PoolBlock* find_fit(const BlockRequest& wanted) REQUIRES(mutex_);
    Result<PoolBlock*> find_elsewhere(const BlockRequest& wanted) REQUIRES(mutex_);
    PoolBlock* cut(PoolBlock* block, const BlockRequest& wanted) REQUIRES(mutex_);
    Status try_to_grow(const BlockRequest& wanted) REQUIRES(mutex_);
    // Makes room by a new slab or by other means; the caller searches again. Called by one thread at a time.
    Status grow(const BlockRequest& wanted, int* attempts) REQUIRES(mutex_);
    Status add_slab(uint64_t bytes) REQUIRES(mutex_);
    void remove_slab(PoolSlab* slab) REQUIRES(mutex_);
    bool can_go(const PoolSlab& slab) const REQUIRES(mutex_);
    // No stream uses the memory that was freed in the retired slab.
    bool is_passed(const PoolSlab& slab) REQUIRES(mutex_);
    // Releases the lock while it calls the source.
    Status give_back(PoolSlab* slab) REQUIRES(mutex_);
    Status give_back_unused(uint64_t keep_bytes) REQUIRES(mutex_);
    Status give_back_retired() REQUIRES(mutex_);
    void give_back_surplus(PoolSlab* newest) REQUIRES(mutex_);

    PoolLane* find_lane(uint64_t id) REQUIRES(mutex_);
    Status mark(PoolLane& lane, void* stream) REQUIRES(mutex_);
    // Checks which marks are passed. Blocks that were freed before them become free for all streams.
    void look(PoolLane& lane) REQUIRES(mutex_);
    void look_at_all() REQUIRES(mutex_);
    // Waits until all current marks are passed. Releases the lock meanwhile.
    Status wait_for_all() REQUIRES(mutex_);
    // Free blocks without a lane next to a block of this lane join the lane.
    void absorb_neighbours(PoolLane& lane) REQUIRES(mutex_);

    void release(PoolBlock* block, PoolLane* lane, uint64_t turn) REQUIRES(mutex_);
    void list(PoolBlock* block, PoolBlock* before = nullptr) REQUIRES(mutex_);
    void unlist(PoolBlock* block) REQUIRES(mutex_);
    void join(PoolBlock* low, PoolBlock* high) REQUIRES(mutex_);
    PoolBlock* split(PoolBlock* block, uint64_t bytes) REQUIRES(mutex_);

    const Options options_;
    SlabSource& source_;
    const std::unique_ptr<Streams> streams_;

    // Held while waits are enqueued on streams, never during a wait of the CPU.
    Mutex mutex_;
    std::condition_variable grown_;
    bool growing_ GUARDED_BY(mutex_) = false;  // a thread is creating a slab
    bool refused_ GUARDED_BY(mutex_) = false;  // the source refused the last slab given back
    PoolBlockStock stock_ GUARDED_BY(mutex_);
    std::map<uint64_t, std::unique_ptr<PoolSlab>> slabs_ GUARDED_BY(mutex_);
    std::unordered_map<uint64_t, PoolBlock*> used_ GUARDED_BY(mutex_);
    std::unordered_map<uint64_t, std::unique_ptr<PoolLane>> lanes_ GUARDED_BY(mutex_);
    PoolBins ready_ GUARDED_BY(mutex_);
    size_t unused_slabs_ GUARDED_BY(mutex_) = 0;
    // Unused slabs beyond this number are given back. It grows when slabs that were given back are needed again, so that
    // a program whose use rises and falls (a training step) does not call the daemon each time.
    size_t kept_slabs_ GUARDED_BY(mutex_) = 1;
    size_t surplus_given_ GUARDED_BY(mutex_) = 0;  // slabs given back, less those made afterwards
    Stats stats_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client
