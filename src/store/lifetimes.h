// Lifetimes: which objects expire, and when, and which are pinned. docs/lifetimes.md explains it. Times are those of
// Clock::steady_ns(). Pure logic, as all of the store.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "store/store.h"

namespace gshm::core {

struct Lifetime {
    explicit Lifetime(Object& of) : object(of) {}

    Object& object;
    int64_t ttl_ns = 0;                // 0: none
    std::atomic<int64_t> from_ns = 0;  // where the ttl begins: its setting, or the last use. Atomic as Object::used_ns
    int64_t due_ns = 0;                // in the queue: the object is looked at then
    uint32_t position = kNone;         // in the queue
    uint64_t pinned_bytes = 0;         // in the budget of the owner
    static constexpr uint32_t kNone = UINT32_MAX;
};

class Lifetimes {
public:
    explicit Lifetimes(Store& store) : store_(store) {}

private:
    Store& store_;
};

}  // namespace gshm::core
