// Pieces that use cuFile, and the trial that decides whether they do: of the first large uncached transfer at a place,
// one part goes through staging memory and the next by cuFile, each alone and timed.
#include <algorithm>
#include <cassert>
#include <chrono>

#include "base/size.h"
#include "io/cufile.h"
#include "io/engine_core.h"

namespace gshm::core::io {
namespace {

constexpr uint64_t kLeastTransfer = uint64_t{8} << 20;
constexpr uint64_t kLeastPiece = uint64_t{1} << 20;
constexpr uint64_t kMostPiece = Staging::kLargeChunkBytes;  // so that a chunk can replace it
constexpr uint8_t kStagedPart = 1;
constexpr uint8_t kCuFilePart = 2;

uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

bool is_write(const Transfer& transfer) {
    return transfer.direction == Direction::write;
}

}  // namespace

void EngineCore::consider_cufile(Transfer& transfer) {
    File& file = *transfer.file;
    const uint64_t bytes = transfer.end_;
    if (!options_.allow_cufile || bytes < kLeastTransfer || file.direct_fd() < 0) return;
    // The threads of cuFile have the rights of the process. Local file systems check the writer of a file (reserved
    // blocks, quotas, set-id bits), not the reader.
    if (options_.rights && is_write(transfer)) return;
    CuFile& cufile = CuFile::get();
    const bool could_measure = bytes >= 2 * options_.cufile_trial_bytes;
    if (!cufile.is_ready(could_measure)) return;
    const auto way = cufile.choose(file.place(), is_write(transfer));
    transfer.by_cufile_ = way == CuFile::Way::cufile;
    if (way != CuFile::Way::measure) return;
    if (!could_measure || file.is_cached(transfer.file_offset, 2 * options_.cufile_trial_bytes)) {
        return cufile.abandoned(file.place(), is_write(transfer));
    }
    transfer.trial_ = kStagedPart;
    transfer.trial_since_ns_ = now_ns();
}

uint64_t EngineCore::trial_end(const Transfer& transfer) const {
    return transfer.trial_ == 0 ? UINT64_MAX : transfer.trial_ * options_.cufile_trial_bytes;
}

// A part begins when the previous one is complete.
bool EngineCore::is_trial_held(Transfer& transfer) {
    if (transfer.next_ < trial_end(transfer)) return false;
    if (transfer.pieces_ != 0) return true;
    const uint64_t now = now_ns();
    if (transfer.trial_ == kStagedPart) {
        transfer.trial_staged_ns_ = now - transfer.trial_since_ns_;
        transfer.trial_since_ns_ = now;
        transfer.trial_ = kCuFilePart;
    } else {
        end_trial(transfer);
    }
    return false;
}

void EngineCore::end_trial(Transfer& transfer) {
    const uint64_t place = transfer.file->place();
    const bool complete =
        transfer.trial_ == kCuFilePart && transfer.next_ >= trial_end(transfer) && transfer.error_ == nullptr;
    transfer.trial_ = 0;
    CuFile& cufile = CuFile::get();
    if (!complete) return cufile.abandoned(place, is_write(transfer));
    cufile.measured(place, is_write(transfer), transfer.trial_staged_ns_, now_ns() - transfer.trial_since_ns_);
    transfer.by_cufile_ = cufile.choose(place, is_write(transfer)) == CuFile::Way::cufile;
}

// False: it must go through staging memory.
bool EngineCore::begin_by_cufile(Transfer& transfer, Piece& piece) {
    const uint64_t position = transfer.file_offset + piece.begin;
    const uint64_t unit = transfer.file->alignment();
    const uint64_t bytes = align_down(std::min(piece.bytes, kMostPiece), unit);
    if (transfer.trial_ == kStagedPart || bytes < kLeastPiece || align_down(position, unit) != position) return false;
    if (!takes_direct(transfer, position, bytes)) return false;
    piece.by_cufile = true;
    piece.bytes = bytes;
    return true;
}

void EngineCore::submit_to_cufile(Piece& piece) {
    const Transfer& transfer = *piece.transfer;
    CuFile::get().submit({.file = transfer.file,
                          .copier = transfer.copier,
                          .is_write = is_write(transfer),
                          .address = transfer.address + piece.begin,
                          .bytes = piece.bytes,
                          .offset = transfer.file_offset + piece.begin,
                          .done = [mailbox = mailbox_.get(), &piece](int64_t moved) {
                              piece.cufile_moved = moved;
                              mailbox->copied(piece);
                          }});
}

// The remainder is repeated through staging memory, which handles ends of files.
void EngineCore::cufile_done(Piece& piece) {
    Transfer& transfer = *piece.transfer;
    if (transfer.error_ != nullptr) return end_piece(piece);
    if (piece.cufile_moved == static_cast<int64_t>(piece.bytes)) {
        transfer.path |= kPathCuFile;
        return end_piece(piece);
    }
    if (piece.cufile_moved < 0) {
        CuFile::get().failed(transfer.file->place(), is_write(transfer));
        transfer.by_cufile_ = false;
        transfer.trial_ = 0;
    }
    piece.by_cufile = false;
    piece.next = starved_pieces_;
    starved_pieces_ = &piece;
    stage_after_all();
}

void EngineCore::stage_after_all() {
    while (starved_pieces_ != nullptr) {
        Piece& piece = *starved_pieces_;
        const uint64_t bytes = piece.bytes;
        if (!stage(*piece.transfer, piece, kMostPiece, false)) return;
        assert(piece.bytes == bytes);
        (void)bytes;
        starved_pieces_ = piece.next;
        go(piece);
    }
}

}  // namespace gshm::core::io
