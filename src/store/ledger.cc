#include "store/ledger.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace gshm::core {
namespace {

constexpr uint64_t kStepBytes = uint64_t{256} << 10;

uint64_t check_of(uint64_t owner, const LedgerEntry& entry) {
    uint64_t check = owner;
    for (uint64_t word : {entry.node, entry.more[0], entry.more[1], entry.more[2], entry.more[3]}) {
        check = (std::rotl(check, 23) ^ word) * 0x9e3779b97f4a7c15;
    }
    return check ^ check >> 32;
}

}  // namespace

uint64_t LedgerEntry::expected_check() const {
    return check_of(owner.load(std::memory_order_relaxed), *this);
}

Status Ledger::check(Slot slot) const {
    const LedgerEntry& found = entry(slot);
    if (found.kind() > LedgerKind::extent || found.check != found.expected_check()) {
        return fail(EUCLEAN, "entry {} of the ledger is damaged", slot);
    }
    const uint64_t value = found.value.load(std::memory_order_relaxed);
    // Ids have 56 bits, and no daemon issues this many.
    constexpr uint64_t kMostNumber = uint64_t{1} << 55;
    if (found.kind() == LedgerKind::numbers && value > kMostNumber) {
        return fail(EUCLEAN, "entry {} of the ledger has a number that cannot be", slot);
    }
    if (found.kind() == LedgerKind::lease && static_cast<uint32_t>(value) > (value >> 32 & INT32_MAX)) {
        return fail(EUCLEAN, "entry {} of the ledger has more writers than leases", slot);
    }
    return {};
}

Status Ledger::check() const {
    for (Slot slot : used()) TRY(check(slot));
    return {};
}

size_t Ledger::drop_damaged() {
    size_t dropped = 0;
    for (Slot slot : used()) {
        if (check(slot)) continue;
        remove(slot);
        ++dropped;
    }
    return dropped;
}

Ledger::Ledger(std::span<std::byte> memory, uint64_t used_bytes, Grow grow)
    : memory_(memory),
      usable_(static_cast<Slot>(std::min<uint64_t>(used_bytes, memory.size()) / sizeof(LedgerEntry))),
      grow_(std::move(grow)) {
    MutexLock lock(mutex_);
    // The lowest slots come last: slots are taken from the back, and the used ones stay close together.
    for (Slot slot = usable_; slot-- > 0;) {
        if (at(slot).kind() == LedgerKind::free) free_.push_back(slot);
    }
}

Status Ledger::reserve(size_t entries) {
    MutexLock lock(mutex_);
    while (free_.size() < entries) {
        uint64_t bytes = uint64_t{usable_} * sizeof(LedgerEntry) + kStepBytes;
        if (bytes > memory_.size()) return fail(ENOSPC, "gshmd has no room to note further leases");
        TRY(grow_(bytes));
        Slot end = static_cast<Slot>(bytes / sizeof(LedgerEntry));
        std::vector<Slot> fresh;
        for (Slot slot = end; slot-- > usable_;) fresh.push_back(slot);
        fresh.insert(fresh.end(), free_.begin(), free_.end());
        free_ = std::move(fresh);
        usable_ = end;
    }
    return {};
}

Ledger::Slot Ledger::add(LedgerKind kind, uint64_t id, uint64_t node, uint64_t value,
                         const std::array<uint64_t, 4>& more) {
    const Slot slot = try_add(kind, id, node, value, more);
    assert(slot != kNone);  // the caller has called reserve()
    return slot;
}

Ledger::Slot Ledger::try_add(LedgerKind kind, uint64_t id, uint64_t node, uint64_t value,
                             const std::array<uint64_t, 4>& more) {
    Slot slot = kNone;
    {
        MutexLock lock(mutex_);
        if (free_.empty()) return kNone;
        slot = free_.back();
        free_.pop_back();
    }
    LedgerEntry& entry = at(slot);
    entry.node = node;
    entry.more = more;
    entry.value.store(value, std::memory_order_relaxed);
    const uint64_t owner = uint64_t{static_cast<uint8_t>(kind)} << 56 | id;
    entry.check = check_of(owner, entry);
    entry.owner.store(owner, std::memory_order_release);
    return slot;
}

void Ledger::remove(Slot slot) {
    at(slot).owner.store(0, std::memory_order_release);
    MutexLock lock(mutex_);
    free_.push_back(slot);
}

Ledger::Slot Ledger::find(LedgerKind kind, uint64_t id) const {
    for (Slot slot = 0; slot < usable_; ++slot) {
        if (entry(slot).kind() == kind && entry(slot).id() == id) return slot;
    }
    return kNone;
}

std::vector<Ledger::Slot> Ledger::used() const {
    std::vector<Slot> slots;
    for (Slot slot = 0; slot < usable_; ++slot) {
        if (entry(slot).kind() != LedgerKind::free) slots.push_back(slot);
    }
    return slots;
}

}  // namespace gshm::core
