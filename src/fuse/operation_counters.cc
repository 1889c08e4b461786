#include "fuse/operation_counters.h"

#include <array>
#include <cerrno>
#include <map>

#include "base/thread_blocks.h"

namespace gshm::core::fuse {
namespace {

constexpr size_t kOpcodes = 64;  // the last is for all beyond

struct Block {
    std::array<Count, kOpcodes> operations;
    Count refusals;
};
using Blocks = ThreadBlocks<Block>;

}  // namespace

void OperationCounters::note(uint32_t opcode, int error) {
    Block& block = Blocks::mine();
    increase(block.operations[opcode < kOpcodes ? opcode : kOpcodes - 1]);
    if (error == EDQUOT) increase(block.refusals);
}

std::vector<std::pair<std::string_view, uint64_t>> OperationCounters::sums() {
    std::map<std::string_view, uint64_t> sums;
    Blocks::for_each([&](const Block& block) {
        for (uint32_t opcode = 0; opcode < kOpcodes; ++opcode) {
            const uint64_t count = block.operations[opcode].load(std::memory_order_relaxed);
            const std::string_view name = name_of(opcode);
            if (count != 0) sums[name.empty() ? "other" : name] += count;
        }
    });
    return {sums.begin(), sums.end()};
}

uint64_t OperationCounters::refusals_of_limits() {
    uint64_t refusals = 0;
    Blocks::for_each([&](const Block& block) { refusals += block.refusals.load(std::memory_order_relaxed); });
    return refusals;
}

}  // namespace gshm::core::fuse
