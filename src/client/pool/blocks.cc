#include "client/pool/blocks.h"

#include <bit>

namespace gshm::core::client {

// The first 32 bins hold exactly one size each.
size_t PoolBins::bin_of(uint64_t bytes) {
    const uint64_t units = bytes / kUnit;
    if (units < kPerDoubling) return static_cast<size_t>(units);
    const auto doubling = static_cast<size_t>(std::bit_width(units)) - 1;
    return (doubling - 3) * kPerDoubling + static_cast<size_t>(units >> (doubling - 4) & (kPerDoubling - 1));
}

void PoolBins::add(PoolBlock* block) {
    const size_t bin = bin_of(block->bytes);
    block->previous = nullptr;
    block->next = bins_[bin];
    if (block->next != nullptr) block->next->previous = block;
    bins_[bin] = block;
    some_[bin / 64] |= uint64_t{1} << bin % 64;
    ++count_;
}

void PoolBins::remove(PoolBlock* block) {
    const size_t bin = bin_of(block->bytes);
    if (block->previous != nullptr) block->previous->next = block->next;
    else bins_[bin] = block->next;
    if (block->next != nullptr) block->next->previous = block->previous;
    if (bins_[bin] == nullptr) some_[bin / 64] &= ~(uint64_t{1} << bin % 64);
    --count_;
}

PoolBlock* PoolBins::lowest(PoolBlock* from, uint64_t bytes) {
    PoolBlock* best = nullptr;
    for (int looked = 0; from != nullptr && looked < kLooked; from = from->next, ++looked) {
        if (from->bytes >= bytes && (best == nullptr || from->address < best->address)) best = from;
    }
    return best;
}

PoolBlock* PoolBins::find(uint64_t bytes) const {
    const size_t bin = bin_of(bytes);
    if (PoolBlock* fitting = lowest(bins_[bin], bytes)) return fitting;
    // Every block in a higher bin is large enough.
    const size_t first = bin + 1;
    for (size_t word = first / 64; word < some_.size(); ++word) {
        uint64_t bits = some_[word];
        if (word == first / 64) bits &= ~uint64_t{0} << first % 64;
        if (bits != 0) return lowest(bins_[word * 64 + static_cast<size_t>(std::countr_zero(bits))], bytes);
    }
    // The blocks of its own bin that lowest() did not reach.
    for (PoolBlock* at = bins_[bin]; at != nullptr; at = at->next) {
        if (at->bytes >= bytes) return at;
    }
    return nullptr;
}

PoolBlock* PoolBlockStock::take() {
    if (unused_ == nullptr) return &all_.emplace_back();
    PoolBlock* block = unused_;
    unused_ = block->next;
    *block = {};
    return block;
}

void PoolBlockStock::give(PoolBlock* block) {
    block->next = unused_;
    unused_ = block;
}

}  // namespace gshm::core::client
