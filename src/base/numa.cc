#include "base/numa.h"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

namespace gshm::core {

void place_near(std::span<std::byte> memory, int node) {
    constexpr int kPreferred = 1;
    constexpr int kNodes = 1024;
    if (node < 0 || node >= kNodes) return;
    unsigned long mask[kNodes / 64] = {};
    mask[node / 64] = 1UL << (node % 64);
    if (syscall(SYS_mbind, memory.data(), memory.size(), kPreferred, mask, kNodes, 0) != 0) {
        log_debug("memory could not be placed on NUMA node {}: errno {}", node, errno);
    }
}

}  // namespace gshm::core
