// An intrusive list of transfers: no allocation.
#pragma once

#include "io/engine.h"

namespace gshm::core::io {

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

// Transfers with nothing in flight come before others, so that large ones do not delay small ones.
enum WaitingClass : unsigned { kFresh, kGoingOn };

// The engine's record of a source.
struct SourceSlot {
    Source* source = nullptr;
    uint64_t tag = 0;                         // of its doorbell
    uint64_t transfers = 0;                   // started and not done
    TransferList waiting[2];                  // with pieces to start, per class
    bool in_turn[2] = {};                     // in the round robin of waiting transfers
    bool is_awake = false;                    // polled before the engine sleeps
    std::move_only_function<void()> removed;  // called when it is removed
};

}  // namespace gshm::core::io
