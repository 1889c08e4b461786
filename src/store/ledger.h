// The ledger: sessions, leases, open files and similar state that must outlive a crash but changes too often for the
// catalog. A table in memory that outlives the process, such as a mapped file. A kill between any two instructions
// leaves each entry either old or new: `owner` is written last when an entry is added, and first when it is removed.
// Threads may add, set and remove different entries concurrently.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace gshm::core {

// `extent`: size and device of an extent that the keeper has, for the case that the catalog is lost.
enum class LedgerKind : uint8_t { free = 0, session = 1, lease = 2, file = 3, backing = 4, numbers = 5, extent = 6 };

struct LedgerEntry {
    std::atomic<uint64_t> owner;  // the kind in the highest byte, below it the id of the session, file, ...
    std::atomic<uint64_t> value;
    uint64_t node;
    std::array<uint64_t, 4> more;
    uint64_t check;  // the checksum of all members but `value`

    uint64_t expected_check() const;
    LedgerKind kind() const { return static_cast<LedgerKind>(owner.load(std::memory_order_relaxed) >> 56); }
    uint64_t id() const { return owner.load(std::memory_order_relaxed) & ((uint64_t{1} << 56) - 1); }
};
static_assert(sizeof(LedgerEntry) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class Ledger {
public:
    using Slot = uint32_t;
    static constexpr Slot kNone = UINT32_MAX;
    // Makes the first `bytes` of the memory usable.
    using Grow = std::function<Status(uint64_t bytes)>;

    // Entries in the first used_bytes are kept.
    Ledger(std::span<std::byte> memory, uint64_t used_bytes, Grow grow);

    // Makes room for that many entries. Other threads may use it up before add().
    Status reserve(size_t entries) EXCLUDES(mutex_);
    Slot add(LedgerKind kind, uint64_t id, uint64_t node, uint64_t value, const std::array<uint64_t, 4>& more = {})
        EXCLUDES(mutex_);
    // The same without reserve(). kNone: no free entry.
    Slot try_add(LedgerKind kind, uint64_t id, uint64_t node, uint64_t value, const std::array<uint64_t, 4>& more = {})
        EXCLUDES(mutex_);
    void set(Slot slot, uint64_t value) { at(slot).value.store(value, std::memory_order_release); }
    void remove(Slot slot) EXCLUDES(mutex_);

    const LedgerEntry& entry(Slot slot) const { return const_cast<Ledger*>(this)->at(slot); }
    // An entry of the kind with this id. kNone: there is none.
    Slot find(LedgerKind kind, uint64_t id) const;
    // The slots in use, in no particular order.
    std::vector<Slot> used() const;
    // EUCLEAN if an entry is damaged.
    Status check() const;
    // Removes damaged entries, and returns their number.
    size_t drop_damaged();

private:
    Status check(Slot slot) const;
    LedgerEntry& at(Slot slot) { return reinterpret_cast<LedgerEntry*>(memory_.data())[slot]; }

    std::span<std::byte> memory_;
    Slot usable_;
    Grow grow_;
    Mutex mutex_;  // no other lock is taken while it is held
    std::vector<Slot> free_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core
