#include "store/numbers.h"

#include <algorithm>

namespace gshm::core {

void Numbers::use(Ledger* ledger, Numbered what) {
    ledger_ = ledger;
    if (ledger == nullptr) return;
    const auto id = static_cast<uint64_t>(what);
    slot_ = ledger->find(LedgerKind::numbers, id);
    if (slot_ == Ledger::kNone) {
        slot_ = ledger->add(LedgerKind::numbers, id, 0, next_);
        return;
    }
    next_ = std::max(next_, ledger->entry(slot_).value.load(std::memory_order_relaxed));
    note();
}

}  // namespace gshm::core
