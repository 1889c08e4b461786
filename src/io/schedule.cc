// Scheduling of pieces: round robin over sources and over the transfers of a source; large transfers never use all
// resources.
#include <algorithm>
#include <limits>
#include <utility>

#include "io/engine_core.h"

namespace gshm::core::io {
namespace {

// Larger transfers are checked carefully: size of the file, holes, presence in the page cache.
constexpr uint64_t kSmallBytes = 256 << 10;
// Per transfer: enough to keep a bus busy with large chunks while as many are being read.
constexpr unsigned kPiecesPerTransfer = 32;

}  // namespace

// done() is called later; here requests are only submitted.
void EngineCore::start(Transfer& transfer) {
    transfer.path = uses_uring_ ? 0U : unsigned{kPathThreads};
    transfer.bytes_by = {};
    transfer.next_ = 0;
    transfer.end_ = transfer.bytes;
    transfer.stretch_end_ = 0;
    transfer.pieces_ = 0;
    transfer.is_large_ = transfer.bytes > kSmallBytes;
    transfer.slot_ = current_;
    ++current_->transfers;
    if (auto ready = prepare(transfer); !ready) transfer.error_ = std::make_unique<Error>(std::move(ready.error()));
    if (is_over(transfer)) return finished_.push(transfer);
    // Waiting transfers go first.
    if (in_turn_[kFresh].empty() && !transfer.is_large_ && begin_piece(transfer) == Begun::yes &&
        transfer.next_ >= transfer.end_) {
        return;
    }
    queue(transfer);
}

Status EngineCore::prepare(Transfer& transfer) {
    transfer.error_.reset();
    transfer.by_cufile_ = false;
    transfer.trial_ = 0;
    File& file = *transfer.file;
    const bool reads = transfer.direction == Direction::read;
    if (reads && !file.is_readable()) return fail(EBADF, "the file is not open for reading");
    if (!reads && !file.is_writable()) return fail(EBADF, "the file is not open for writing, or only for appending");
    if (transfer.copier != nullptr && staging_ == nullptr) return fail(ENOMEM, "there is no staging memory");
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (transfer.file_offset > kMost || transfer.bytes > kMost - transfer.file_offset) {
        return fail(EINVAL, "the range exceeds the maximum file size");
    }
    if (!reads) {
        if (transfer.copier != nullptr && transfer.is_large_) consider_cufile(transfer);
        return {};
    }
    uint64_t size = file.known_size();
    if (transfer.is_large_ || transfer.file_offset + transfer.bytes > size) size = file.size();
    if (!file.has_size() && size == 0) return {};
    transfer.end_ = size > transfer.file_offset ? std::min(transfer.bytes, size - transfer.file_offset) : 0;
    if (!transfer.is_large_ || !file.is_sparse()) transfer.stretch_end_ = transfer.end_;
    transfer.in_hole_ = false;
    if (transfer.copier != nullptr && transfer.is_large_) consider_cufile(transfer);
    return {};
}

// Puts it into the list from which its next piece starts.
void EngineCore::queue(Transfer& transfer) {
    const WaitingClass kind = transfer.pieces_ == 0 ? kFresh : kGoingOn;
    SourceSlot& slot = *transfer.slot_;
    slot.waiting[kind].push(transfer);
    if (std::exchange(slot.in_turn[kind], true)) return;
    in_turn_[kind].push_back(&slot);
}

void EngineCore::begin_waiting() {
    // A quarter of the pieces is reserved for fresh transfers. If these keep coming, every fourth piece is one of the
    // others.
    const unsigned kept = options_.depth / 4;
    while (free_count_ != 0) {
        const bool fresh = !in_turn_[kFresh].empty();
        const bool going_on = !in_turn_[kGoingOn].empty() && (free_count_ > kept || (fresh && turn_ % 4 == 0));
        ++turn_;
        if (going_on && (!fresh || turn_ % 2 == 1)) serve(kGoingOn);
        else if (fresh) serve(kFresh);
        else return;
    }
}

// Starts one piece of the first transfer of the next source.
void EngineCore::serve(WaitingClass kind) {
    SourceSlot& slot = *in_turn_[kind].front();
    in_turn_[kind].pop_front();
    Transfer& transfer = *slot.waiting[kind].pop();
    if (slot.removed && transfer.error_ == nullptr) {
        transfer.error_ = std::make_unique<Error>(Error{ECANCELED, "the source of the transfer was removed"});
    }
    const bool goes_on = transfer.error_ == nullptr && transfer.next_ < transfer.end_;
    const Begun begun = goes_on ? begin_piece(transfer) : Begun::not_now;
    if (begun == Begun::no_chunk) starved_.push(transfer);
    else if (is_over(transfer)) finish(transfer);
    else if (begun == Begun::yes && transfer.next_ < transfer.end_ && transfer.pieces_ < kPiecesPerTransfer)
        queue(transfer);
    slot.in_turn[kind] = !slot.waiting[kind].empty();
    if (slot.in_turn[kind]) in_turn_[kind].push_back(&slot);
}

void EngineCore::finish(Transfer& transfer) {
    SourceSlot& slot = *transfer.slot_;
    if (transfer.trial_ != 0) end_trial(transfer);
    --slot.transfers;
    wake(slot);
    current_ = &slot;
    if (transfer.error_ != nullptr) transfer.done(std::unexpected(std::move(*transfer.error_)));
    else transfer.done(transfer.end_);
    drop_if_over(slot);
}

}  // namespace gshm::core::io
