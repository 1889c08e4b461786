// Numbers that stand for something outside of gshmd: with the kernel, in a client, in a page that outlives us. None is
// handed out twice, whichever daemon hands it out: the ledger has the next one before this one is used.
#pragma once

#include "store/ledger.h"

namespace gshm::core {

// Kinds of numbers, as the ledger knows them.
enum class Numbered : uint8_t { node = 1, extent = 2, extent_key = 3, session = 4, file = 5 };

class Numbers {
public:
    uint64_t take() {
        const uint64_t number = next_;
        skip_to(number + 1);
        return number;
    }
    uint64_t next() const { return next_; }
    // Those below may have been used.
    void skip_to(uint64_t next) {
        if (next <= next_) return;
        next_ = next;
        note();
    }
    // Goes on where the ledger is, which has one entry reserved. Null: nothing is noted any more.
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
