// The pieces that a pool's slabs are cut into, and the free ones among them by size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace gshm::core::client {

struct PoolLane;
struct PoolSlab;

// A stretch of a slab, used or free. Neighbours that are free are one as soon as the same stream is behind both.
struct PoolBlock {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t asked = 0;  // what the caller said; 0: free
    PoolSlab* slab = nullptr;
    PoolBlock* below = nullptr;  // in the slab
    PoolBlock* above = nullptr;

    // Of a free one. Null: whoever used it is done.
    PoolLane* lane = nullptr;
    uint64_t turn = 0;  // of the lane: it was freed then
    PoolBlock* earlier = nullptr;  // in the lane, by turn
    PoolBlock* later = nullptr;
    PoolBlock* next = nullptr;  // in the bin
    PoolBlock* previous = nullptr;

    bool is_free() const { return asked == 0; }
    uint64_t end() const { return address + bytes; }
};

// Free blocks by size: sixteen bins for each doubling, and a bit for each bin that has some. Everything takes the same
// time however many there are. What find() gives is among those that fit best, and of these a low one, so that the upper ones
// become large.
class PoolBins {
public:
    static constexpr uint64_t kUnit = 512;  // sizes and addresses are multiples of it

    void add(PoolBlock* block);
    void remove(PoolBlock* block);
    // Null: none is that large.
    PoolBlock* find(uint64_t bytes) const;
    bool empty() const { return count_ == 0; }

private:
    static constexpr size_t kPerDoubling = 16;
    static constexpr size_t kBins = 640;  // up to 2^49 bytes
    static constexpr int kLooked = 8;     // in one bin

    static size_t bin_of(uint64_t bytes);
    static PoolBlock* lowest(PoolBlock* from, uint64_t bytes);

    std::array<PoolBlock*, kBins> bins_ = {};
    std::array<uint64_t, kBins / 64> some_ = {};
    size_t count_ = 0;
};

// Blocks that are not in use as such, kept for the next.
class PoolBlockStock {
public:
    PoolBlock* take();
    void give(PoolBlock* block);

private:
    std::deque<PoolBlock> all_;
    PoolBlock* unused_ = nullptr;
};

}  // namespace gshm::core::client
