#include "daemon/freed_memory.h"

#include <fstream>
#include <malloc.h>
#include <unistd.h>

namespace gshm::core {
namespace {

// Private memory of this process.
uint64_t used_bytes() {
    uint64_t size = 0;
    uint64_t resident = 0;
    uint64_t shared = 0;
    std::ifstream("/proc/self/statm") >> size >> resident >> shared;
    return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void FreedMemory::session_ended() {
    constexpr std::chrono::seconds kDelay{1};
    if (is_scheduled_.exchange(true)) return;
    loop_.after(kDelay, [this] {
        worker_.submit([this] {
            is_scheduled_ = false;
            give_back();
        });
    });
}

void FreedMemory::give_back() {
    constexpr uint64_t kMuch = uint64_t{8} << 20;
    const uint64_t before = used_bytes();
    if (before > used_bytes_ + kMuch) malloc_trim(0);
    used_bytes_ = before > used_bytes_ + kMuch ? used_bytes() : std::min(before, used_bytes_);
}

}  // namespace gshm::core
