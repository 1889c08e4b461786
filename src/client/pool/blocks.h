// The blocks of a pool's slabs, and the index of free blocks by size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace gshm::core::client {

struct PoolLane;
struct PoolSlab;

// A range of a slab, used or free. Adjacent free blocks are merged when they have the same lane.
struct PoolBlock {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t asked = 0;  // the requested size; 0: free
    PoolSlab* slab = nullptr;
    PoolBlock* below = nullptr;  // in the slab
    PoolBlock* above = nullptr;

    // The lane of a free block. Null: no stream uses it any more.
    PoolLane* lane = nullptr;
    uint64_t turn = 0;             // the turn of the lane in which it was freed
    PoolBlock* earlier = nullptr;  // in the lane, by turn
    PoolBlock* later = nullptr;
    PoolBlock* next = nullptr;  // in the bin
    PoolBlock* previous = nullptr;

    bool is_free() const { return asked == 0; }
    uint64_t end() const { return address + bytes; }
};

// Free blocks by size: sixteen bins for each power of two, and a bit for each bin that is not empty. Each operation
// takes constant time. find() returns one of the best-fitting blocks, at a low address, so that high addresses stay
// free for large blocks.
class PoolBins {
public:
    static constexpr uint64_t kUnit = 512;  // sizes and addresses are multiples of it

    void add(PoolBlock* block);
    void remove(PoolBlock* block);
    // Null: no block is large enough.
    PoolBlock* find(uint64_t bytes) const;
    bool empty() const { return count_ == 0; }

private:
    static constexpr size_t kPerDoubling = 16;
    static constexpr size_t kBins = 640;  // up to 2^49 bytes
    static constexpr int kLooked = 8;     // blocks tried in one bin

    static size_t bin_of(uint64_t bytes);
    static PoolBlock* lowest(PoolBlock* from, uint64_t bytes);

    std::array<PoolBlock*, kBins> bins_ = {};
    std::array<uint64_t, kBins / 64> some_ = {};
    size_t count_ = 0;
};

// Recycles unused block structs.
class PoolBlockStock {
public:
    PoolBlock* take();
    void give(PoolBlock* block);

private:
    std::deque<PoolBlock> all_;
    PoolBlock* unused_ = nullptr;
};

}  // namespace gshm::core::client
