// The engine over any queue: scheduling, splitting into pieces, and their completion.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "io/engine.h"
#include "io/mailbox.h"
#include "io/piece.h"
#include "io/queue.h"
#include "io/transfer_list.h"

namespace gshm::core::io {

class EngineCore final : public Engine {
public:
    // Called in the engine's thread.
    using MakeQueue = std::move_only_function<Result<std::unique_ptr<Queue>>()>;
    static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Staging> staging, const Options& options,
                                                  MakeQueue make_queue);
    ~EngineCore() override;

    Status add(Source& source) override;
    void remove(Source& source) override;
    void poke(Source& source) override;
    void start(Transfer& transfer) override;
    bool uses_uring() const override { return uses_uring_; }

private:
    EngineCore(std::shared_ptr<Staging> staging, const Options& options);

    // The loop, engine_core.cc. Everything below is for the engine's thread only.
    Status open(MakeQueue& make_queue);
    void run();
    void handle(const Event& event);
    void read_mail();
    void poll_sources();
    void serve_sources();
    void wake(SourceSlot& slot);
    Status add_slot(Source& source);
    void poke_slot(Source& source);
    void remove_slot(Source& source, std::move_only_function<void()> removed);
    void drop_if_over(SourceSlot& slot);

    // Scheduling of pieces, schedule.cc.
    Status prepare(Transfer& transfer);
    void queue(Transfer& transfer);
    void begin_waiting();
    void serve(WaitingClass kind);
    void finish(Transfer& transfer);
    bool is_over(const Transfer& transfer) const {
        return transfer.pieces_ == 0 && (transfer.error_ != nullptr || transfer.next_ >= transfer.end_);
    }

    // One piece from start to end, pieces.cc.
    enum class Begun { yes, not_now, no_chunk };
    Begun begin_piece(Transfer& transfer);
    bool begin_on_host(Transfer& transfer, Piece& piece);
    bool begin_on_device(Transfer& transfer, Piece& piece);
    void find_stretch(Transfer& transfer);
    bool takes_direct(const Transfer& transfer, uint64_t position, uint64_t bytes) const;
    bool stage(Transfer& transfer, Piece& piece, uint64_t most_bytes, bool any_chunk);
    void go(Piece& piece);
    void submit(Piece& piece);
    void moved(Piece& piece, int32_t result);
    void file_part_done(Piece& piece);
    void copied(Piece& piece);
    void end_piece(Piece& piece);
    void fail_transfer(Transfer& transfer, Error error);
    Copier::Done when_copied(Piece& piece);

    // Transfers by cuFile, and the measurement, cufile_pieces.cc.
    void consider_cufile(Transfer& transfer);
    bool begin_by_cufile(Transfer& transfer, Piece& piece);
    void submit_to_cufile(Piece& piece);
    void cufile_done(Piece& piece);
    void stage_after_all();
    bool is_trial_held(Transfer& transfer);
    void end_trial(Transfer& transfer);
    uint64_t trial_end(const Transfer& transfer) const;

    const std::shared_ptr<Staging> staging_;
    const Options options_;
    std::unique_ptr<Mailbox> mailbox_;
    std::unique_ptr<Queue> queue_;
    UniqueFd zeros_;
    bool uses_uring_ = false;
    bool ending_ = false;

    std::deque<SourceSlot> slots_;  // free if without a source
    uint32_t watches_ = 0;          // total number so far
    std::vector<SourceSlot*> awake_;
    std::deque<SourceSlot*> in_turn_[2];  // per class of waiting transfers
    unsigned turn_ = 0;
    SourceSlot* current_ = nullptr;    // source of the transfers that start() gets
    TransferList finished_;            // already done when started
    TransferList starved_;             // waiting for a chunk
    Piece* starved_pieces_ = nullptr;  // refused by cuFile; likewise
    std::vector<Piece> pieces_;
    Piece* free_pieces_ = nullptr;
    unsigned free_count_ = 0;

    std::thread thread_;
};

}  // namespace gshm::core::io
