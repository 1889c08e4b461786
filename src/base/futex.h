// Sleeping on words that another process, or another thread, changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace gshm {

// A word and the value at which it is worth waiting.
struct Awaited {
    const std::atomic<uint32_t>* word;
    uint32_t value;
};
// Sleeps until one of them has changed and was woken, or the time has passed.
void wait_for_any(std::span<const Awaited> words, std::chrono::nanoseconds timeout);
// Whoever sleeps there.
void wake(const std::atomic<uint32_t>& word);

}  // namespace gshm
