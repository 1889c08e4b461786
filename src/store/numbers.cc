#include "store/numbers.h"

#include <algorithm>

namespace gshm::core {

void Numbers::use(Ledger* ledger, Numbered what) {
    ledger_ = ledger;
    if (ledger == nullptr) return;
    const auto id = static_cast<uint64_t>(what);
    for (Ledger::Slot slot : ledger->used()) {
        const LedgerEntry& entry = ledger->entry(slot);
        if (entry.kind() != LedgerKind::numbers || entry.id() != id) continue;
        slot_ = slot;
        next_ = std::max(next_, entry.value.load(std::memory_order_relaxed));
        return note();
    }
    slot_ = ledger->add(LedgerKind::numbers, id, 0, next_);
}

}  // namespace gshm::core
