#include "memory/transfer_counters.h"

#include <cassert>

namespace gshm::core {
namespace {

struct Block {
    struct Counts {
        std::array<Count, kTransferPaths> bytes;
        CountedDurations durations;
    };
    std::array<std::array<Counts, 2>, limits::kDevices> counts;
};
using Blocks = ThreadBlocks<Block>;

auto& of(auto& block, uint32_t device, TransferDirection direction) {
    assert(device < limits::kDevices);
    return block.counts[device][static_cast<size_t>(direction)];
}

}  // namespace

void TransferCounters::note_bytes(uint32_t device, TransferDirection direction, TransferPath path, uint64_t bytes) {
    increase(of(Blocks::mine(), device, direction).bytes[static_cast<size_t>(path)], bytes);
}

void TransferCounters::note_duration(uint32_t device, TransferDirection direction, uint64_t ns) {
    of(Blocks::mine(), device, direction).durations.add(ns);
}

TransferCounters::Sums TransferCounters::sums(uint32_t device, TransferDirection direction) {
    Sums sums;
    Blocks::for_each([&](const Block& block) {
        const auto& counts = of(block, device, direction);
        for (size_t i = 0; i < kTransferPaths; ++i) sums.bytes[i] += counts.bytes[i].load(std::memory_order_relaxed);
        sums.durations.add(counts.durations);
    });
    return sums;
}

}  // namespace gshm::core
