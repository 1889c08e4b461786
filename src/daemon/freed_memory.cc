#include "daemon/freed_memory.h"

#include <algorithm>
#include <malloc.h>

namespace gshm::core {

FreedMemory::FreedMemory(EventLoop& loop) : loop_(loop) {
    // Fixed: the allocator otherwise raises both with the sizes that it sees. After one large request every thread would
    // then keep as much, and malloc_trim() does not give back the end of a thread's memory.
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

void FreedMemory::session_ended() {
    constexpr std::chrono::milliseconds kDelay{1000};
    if (is_scheduled_.exchange(true)) return;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(not_before_.load() - Clock::now());
    loop_.after(std::max(kDelay, wait), [this] {
        worker_.submit([this] {
            is_scheduled_ = false;
            give_back();
        });
    });
}

void FreedMemory::give_back() {
    constexpr size_t kMuch = size_t{16} << 20;
    constexpr int kRarely = 100;  // the allocator is locked meanwhile
    const auto begin = Clock::now();
    if (mallinfo2().fordblks > kMuch) malloc_trim(0);
    const auto end = Clock::now();
    not_before_ = end + kRarely * (end - begin);
}

}  // namespace gshm::core
