// Counts the requests of the kernel, by operation. For the metrics.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace gshm::core::fuse {

// "lookup", "read", ...; "" for those without a name of their own.
std::string_view name_of(uint32_t opcode);

class OperationCounters {
public:
    // From any thread. error: 0 or an errno.
    static void note(uint32_t opcode, int error);
    // Those that have occurred; "other" for those without a name.
    static std::vector<std::pair<std::string_view, uint64_t>> sums();
    // Refusals because of a limit of the user: EDQUOT.
    static uint64_t refusals_of_limits();
};

}  // namespace gshm::core::fuse
