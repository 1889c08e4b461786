// Ids that the kernel, clients and memory that outlives gshmd refer to. No id is issued twice, not even by a later
// daemon: the ledger has the next one before an id is used.
#pragma once

#include "store/ledger.h"

namespace gshm::core {

// Kinds of ids in the ledger.
enum class Numbered : uint8_t { node = 1, extent = 2, extent_key = 3, session = 4, file = 5 };

class Numbers {
public:
    uint64_t take() {
        const uint64_t number = next_;
        skip_to(number + 1);
        return number;
    }
    uint64_t next() const { return next_; }
    // Ids below `next` may have been used.
    void skip_to(uint64_t next) {
        if (next <= next_) return;
        next_ = next;
        note();
    }
    // Continues at the next id of the ledger, in which one entry is reserved. Null: the ledger is no longer updated.
    void use(Ledger* ledger, Numbered what);

private:
    void note() {
        if (ledger_ != nullptr) ledger_->set(slot_, next_);
    }

    uint64_t next_ = 1;
    Ledger* ledger_ = nullptr;
    Ledger::Slot slot_ = Ledger::kNone;
};

}  // namespace gshm::core
