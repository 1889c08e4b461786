// Transfers in a row, chained through themselves: putting one into a list costs no memory.
#pragma once

#include "io/engine.h"

namespace gshm::io {

class TransferList {
public:
    bool empty() const { return first_ == nullptr; }
    Transfer* front() const { return first_; }
    void push(Transfer& transfer) {
        transfer.list_next_ = nullptr;
        transfer.in_list_ = true;
        (first_ == nullptr ? first_ : last_->list_next_) = &transfer;
        last_ = &transfer;
    }
    Transfer* pop() {
        Transfer* transfer = first_;
        first_ = transfer->list_next_;
        transfer->in_list_ = false;
        return transfer;
    }

private:
    Transfer* first_ = nullptr;
    Transfer* last_ = nullptr;
};

// Transfers with nothing under way come before those that have: so large ones do not keep small ones waiting.
enum WaitingClass : unsigned { kFresh, kGoingOn };

// A source as the engine knows it.
struct SourceSlot {
    Source* source = nullptr;
    uint64_t tag = 0;          // of its doorbell
    uint64_t transfers = 0;    // started and not done
    TransferList waiting[2];   // those with pieces to begin, in each class
    bool in_turn[2] = {};      // it is among those whose waiting transfers are looked at
    bool is_awake = false;     // it is among those that are polled before the engine sleeps
    std::move_only_function<void()> removed;  // somebody waits for its end
};

}  // namespace gshm::io
