// One piece of a transfer: its path, and the next step after each completion.
#include <algorithm>

#include "base/size.h"
#include "io/engine_core.h"

namespace gshm::core::io {
namespace {

// For ordinary memory; a good size for the kernel and disks.
constexpr uint64_t kHostPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kFillBytes = uint64_t{256} << 20;
// If holes and data are shorter than the first, the second is read without queries, which would cost more.
constexpr uint64_t kStretchBytes = 64 << 10;
constexpr uint64_t kUnaskedBytes = uint64_t{8} << 20;
// Maximum number of consecutive interruptions.
constexpr uint8_t kMostStalls = 100;
// Smaller transfers use smaller chunks, so that reading and copying overlap.
constexpr uint64_t kLargeChunksFrom = uint64_t{64} << 20;
constexpr uint64_t kMediumChunkBytes = uint64_t{2} << 20;

}  // namespace

EngineCore::Begun EngineCore::begin_piece(Transfer& transfer) {
    Piece* piece = free_pieces_;
    if (piece == nullptr || (transfer.trial_ != 0 && is_trial_held(transfer))) return Begun::not_now;
    if (transfer.next_ >= transfer.stretch_end_) find_stretch(transfer);
    piece->transfer = &transfer;
    piece->begin = transfer.next_;
    piece->moved = 0;
    piece->lead = 0;
    piece->stalls = 0;
    piece->in_parallel = false;
    piece->from_zeros = false;
    piece->by_cufile = false;
    piece->direct = false;
    const bool begun = transfer.copier == nullptr ? begin_on_host(transfer, *piece) : begin_on_device(transfer, *piece);
    if (!begun) return Begun::no_chunk;
    free_pieces_ = piece->next;
    --free_count_;
    ++transfer.pieces_;
    transfer.next_ += piece->bytes;
    go(*piece);
    return Begun::yes;
}

// Starts the first step of a prepared piece.
void EngineCore::go(Piece& piece) {
    Transfer& transfer = *piece.transfer;
    if (piece.by_cufile) return submit_to_cufile(piece);
    if (piece.chunk && transfer.direction == Direction::write) {
        transfer.copier->copy_out(piece.memory, transfer.address + piece.begin, piece.bytes, when_copied(piece));
    } else if (piece.from_zeros && transfer.copier != nullptr) {
        transfer.path |= kPathHole;
        transfer.copier->fill(transfer.address + piece.begin, piece.bytes, 0, when_copied(piece));
    } else {
        submit(piece);
    }
}

bool EngineCore::begin_on_host(Transfer& transfer, Piece& piece) {
    const File& file = *transfer.file;
    const uint64_t position = transfer.file_offset + transfer.next_;
    const uint64_t unit = file.alignment();
    uint64_t bytes = transfer.stretch_end_ - transfer.next_;
    if (bytes > kHostPieceBytes) bytes = align_down(position + kHostPieceBytes, unit) - position;
    piece.bytes = bytes;
    piece.memory = reinterpret_cast<std::byte*>(transfer.address + transfer.next_);
    piece.file_begin = position;
    piece.file_end = position + bytes;
    piece.from_zeros = transfer.in_hole_;
    if (transfer.in_hole_) return true;
    const bool agrees = ((transfer.address - transfer.file_offset) & (file.memory_alignment() - 1)) == 0;
    if (!agrees || !takes_direct(transfer, position, bytes)) return true;
    uint64_t end = piece.file_end;
    // The last block of a file is not read whole, since bytes beyond the end would reach the memory.
    if (transfer.direction == Direction::read) end = std::min(end, file.known_size());
    piece.direct_end = align_down(end, unit);
    piece.direct = align_up(position, unit) < piece.direct_end;
    return true;
}

bool EngineCore::begin_on_device(Transfer& transfer, Piece& piece) {
    const uint64_t left = std::min(transfer.stretch_end_, trial_end(transfer)) - transfer.next_;
    if (transfer.in_hole_) {
        piece.from_zeros = true;
        piece.bytes = std::min(left, kFillBytes);
        return true;
    }
    piece.bytes = left;
    if ((transfer.by_cufile_ || transfer.trial_ != 0) && begin_by_cufile(transfer, piece)) return true;
    // A transfer with nothing in flight takes any chunk; otherwise a stream of small transfers could starve it.
    const uint64_t most = transfer.bytes < kLargeChunksFrom ? kMediumChunkBytes : Staging::kLargeChunkBytes;
    return stage(transfer, piece, most, transfer.pieces_ == 0);
}

// Uses a chunk, for as much of the piece as it holds. False: none is free.
bool EngineCore::stage(Transfer& transfer, Piece& piece, uint64_t most_bytes, bool any_chunk) {
    const File& file = *transfer.file;
    const uint64_t position = transfer.file_offset + piece.begin;
    const uint64_t unit = file.alignment();
    const auto skipped = static_cast<uint32_t>(position - align_down(position, unit));
    piece.chunk = staging_->take(std::min(align_up(skipped + piece.bytes, unit), most_bytes), any_chunk, *mailbox_,
                                 options_.staging_user);
    if (!piece.chunk) return false;
    piece.bytes = std::min(piece.bytes, piece.chunk.bytes - skipped);
    piece.file_begin = position;
    piece.file_end = position + piece.bytes;
    piece.memory = piece.chunk.data + skipped;
    piece.direct = takes_direct(transfer, position, piece.bytes);
    if (piece.direct && transfer.direction == Direction::read) {
        piece.lead = skipped;
        piece.file_begin -= skipped;
        piece.memory = piece.chunk.data;
        piece.direct_end = align_up(piece.file_end, unit);
    } else {
        piece.direct_end = align_down(piece.file_end, unit);
        piece.direct = piece.direct && align_up(position, unit) < piece.direct_end;
    }
    transfer.path |= kPathStaged;
    return true;
}

void EngineCore::find_stretch(Transfer& transfer) {
    const bool may_have_holes =
        transfer.direction == Direction::read && transfer.is_large_ && transfer.file->is_sparse();
    transfer.in_hole_ = false;
    transfer.stretch_end_ = transfer.end_;
    if (!may_have_holes) return;
    const uint64_t position = transfer.file_offset + transfer.next_;
    const auto stretch = transfer.file->stretch_at(position);
    if (stretch.end <= position) return;  // the file has become shorter: reading detects it
    const uint64_t end = std::min(transfer.end_, stretch.end - transfer.file_offset);
    if (end - transfer.next_ < kStretchBytes) {
        transfer.stretch_end_ = std::min(transfer.end_, transfer.next_ + kUnaskedBytes);
        return;
    }
    transfer.in_hole_ = stretch.is_hole;
    transfer.stretch_end_ = end;
}

bool EngineCore::takes_direct(const Transfer& transfer, uint64_t position, uint64_t bytes) const {
    File& file = *transfer.file;
    if (file.direct_fd() < 0) return false;
    return transfer.is_large_ ? !file.is_cached(position, bytes) : !file.is_mostly_cached(position, bytes);
}

void EngineCore::submit(Piece& piece) {
    Transfer& transfer = *piece.transfer;
    const Request request = next_request(piece, *transfer.file, transfer.direction == Direction::write, zeros_.get());
    transfer.path |= piece.from_zeros ? kPathHole : piece.last_direct ? kPathDirect : kPathCached;
    queue_->submit(request);
}

void EngineCore::moved(Piece& piece, int32_t result) {
    Transfer& transfer = *piece.transfer;
    const bool is_write = transfer.direction == Direction::write;
    if (transfer.error_ != nullptr) return end_piece(piece);
    if (result > 0) {
        piece.moved += static_cast<uint32_t>(result);
        piece.stalls = 0;
        if (piece.is_moved()) return file_part_done(piece);
    } else if (result == 0 && !is_write) {
        return file_part_done(piece);  // the end of the file
    } else if (result == 0) {
        if (++piece.stalls > 1) fail_transfer(transfer, fail(EIO, "the file accepts no more bytes").error());
    } else if (result == -EINVAL && piece.last_direct) {
        transfer.file->give_up_direct();
        piece.direct = false;
    } else if ((result == -EAGAIN || result == -EINTR) && piece.stalls < kMostStalls) {
        ++piece.stalls;
        piece.in_parallel = true;  // by a thread that may block
    } else {
        fail_transfer(transfer,
                      fail_errno(is_write ? "cannot write to the file" : "cannot read the file", -result).error());
    }
    if (transfer.error_ != nullptr) return end_piece(piece);
    submit(piece);
}

void EngineCore::file_part_done(Piece& piece) {
    Transfer& transfer = *piece.transfer;
    if (transfer.direction == Direction::write) return end_piece(piece);
    const uint64_t wanted = piece.wanted_moved();
    if (wanted < piece.bytes) transfer.end_ = std::min(transfer.end_, piece.begin + wanted);
    if (!piece.chunk || wanted == 0) return end_piece(piece);
    transfer.copier->copy_in(transfer.address + piece.begin, piece.memory + piece.lead, wanted, when_copied(piece));
}

Copier::Done EngineCore::when_copied(Piece& piece) {
    return [mailbox = mailbox_.get(), &piece](Status status) {
        if (!status) piece.copy_error = std::make_unique<Error>(std::move(status.error()));
        mailbox->copied(piece);
    };
}

void EngineCore::copied(Piece& piece) {
    if (piece.by_cufile) return cufile_done(piece);
    Transfer& transfer = *piece.transfer;
    if (piece.copy_error != nullptr) fail_transfer(transfer, std::move(*std::exchange(piece.copy_error, nullptr)));
    const bool file_is_next = piece.chunk && transfer.direction == Direction::write && transfer.error_ == nullptr;
    if (file_is_next) submit(piece);
    else end_piece(piece);
}

void EngineCore::fail_transfer(Transfer& transfer, Error error) {
    if (transfer.error_ == nullptr) transfer.error_ = std::make_unique<Error>(std::move(error));
}

void EngineCore::end_piece(Piece& piece) {
    Transfer& transfer = *piece.transfer;
    const Way way = piece.by_cufile    ? Way::cufile
                    : piece.from_zeros ? Way::hole
                    : piece.direct     ? Way::direct
                                       : Way::cached;
    const bool is_partial = transfer.direction == Direction::read && way != Way::cufile && way != Way::hole;
    transfer.bytes_by[static_cast<size_t>(way)] += is_partial ? piece.wanted_moved() : piece.bytes;
    if (piece.chunk) staging_->give(std::exchange(piece.chunk, {}), options_.staging_user);
    piece.next = free_pieces_;
    free_pieces_ = &piece;
    ++free_count_;
    --transfer.pieces_;
    if (transfer.in_list_) return;  // its next holder checks its state
    if (is_over(transfer)) return finish(transfer);
    if (transfer.error_ == nullptr && transfer.next_ < transfer.end_) queue(transfer);
}

}  // namespace gshm::core::io
