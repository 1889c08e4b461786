// Sleeping on words that another process or thread changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace gshm::core {

// A word, and the value during which to wait.
struct Awaited {
    const std::atomic<uint32_t>* word;
    uint32_t value;
};
// Sleeps until one of the words was changed and woken, or the time has passed.
void wait_for_any(std::span<const Awaited> words, std::chrono::nanoseconds timeout);
// Wakes all sleepers of the word.
void wake(const std::atomic<uint32_t>& word);

}  // namespace gshm::core
