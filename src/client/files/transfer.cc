#include "client/files/transfer.h"

#include <chrono>

#include "client/ring/ring.h"

namespace gshm::core::client {
namespace {

// Large enough to hide the cost of a round trip, and small enough for steady progress.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr uint32_t kPieces = 32;
constexpr int kTellEveryMs = 100;
// The timeout for a file operation that hangs after the caller has stopped the transfer.
constexpr std::chrono::milliseconds kPatience{1000};

// One transfer, with exclusive use of a ring.
class Transfer {
public:
    Transfer(gshm_object& object, uint32_t operation, const FileRange& range, const gshm_transfer_options& options)
        : object_(object), operation_(operation), range_(range), options_(options) {}

    Result<gshm_transfer_info> run() {
        const auto begin = std::chrono::steady_clock::now();
        ring_ = TRY(Ring::take(object_.core, kPieces));
        file_ = TRY(ring_->add_file(range_.fd));
        TRY(tell());
        while ((!stopped_ && next_ < range_.bytes) || under_way_ > 0) {
            fill();
            TRY(take());
            if (!stopped_at_) {
                // Also after a failure: a transfer under way may never end.
                auto told = tell();
                if (told) continue;
                stop(told.error());
                stopped_at_ = std::chrono::steady_clock::now();
            }
            if (std::chrono::steady_clock::now() - *stopped_at_ > kPatience && ring_->abandon()) break;
        }
        if (error_) return std::unexpected(*error_);
        // After an error the ring is not reused.
        if (ring_->remove_file(file_)) Ring::put_aside(std::move(ring_));
        const auto took = std::chrono::steady_clock::now() - begin;
        return gshm_transfer_info{sizeof(gshm_transfer_info), path_, done_,
                                  static_cast<uint64_t>(std::chrono::nanoseconds(took).count())};
    }

private:
    void fill() {
        while (!stopped_ && next_ < range_.bytes && under_way_ < kPieces) {
            const uint64_t bytes = std::min(kPieceBytes, range_.bytes - next_);
            const gshm_range range = {&object_, range_.offset + next_, bytes};
            const gshm_io io = {sizeof io, operation_, file_, 0, range_.file_offset + next_, &range, 1, bytes};
            if (auto prepared = ring_->prepare(io); !prepared) return stop(prepared.error());
            next_ += bytes;
            ++under_way_;
        }
        (void)ring_->submit();  // a transfer that cannot begin completes with its error
    }
    Status take() {
        if (under_way_ == 0) return {};
        gshm_completion completions[kPieces];
        const size_t count = TRY(ring_->wait(completions, 1, kTellEveryMs));
        for (size_t i = 0; i < count; ++i) {
            --under_way_;
            const auto& one = completions[i];
            path_ |= one.path;
            if (one.result < 0) {
                stop({static_cast<int>(-one.result), failure(static_cast<int>(-one.result))});
            } else {
                done_ += static_cast<uint64_t>(one.result);
                if (static_cast<uint64_t>(one.result) < one.user_data)
                    stop({ENODATA, "the file ends before the range does"});
            }
        }
        return {};
    }
    std::string failure(int code) const {
        const char* what = operation_ == GSHM_IO_READ ? "reading the file into" : "writing the file from";
        return fmt::format("{} the object failed: {}", what, strerror(code));
    }
    void stop(const Error& error) {
        stopped_ = true;
        if (!error_) error_ = error;
    }
    Status tell() {
        if (options_.progress == nullptr) return {};
        if (options_.progress(options_.context, done_, range_.bytes) == 0) return {};
        return fail(ECANCELED, "the transfer was stopped");
    }

    gshm_object& object_;
    const uint32_t operation_;
    const FileRange range_;
    const gshm_transfer_options options_;
    std::unique_ptr<Ring> ring_;
    uint32_t file_ = 0;
    uint64_t next_ = 0;
    uint64_t done_ = 0;
    uint32_t under_way_ = 0;
    uint32_t path_ = 0;
    bool stopped_ = false;
    std::optional<std::chrono::steady_clock::time_point> stopped_at_;  // by the caller
    std::optional<Error> error_;
};

}  // namespace

Result<gshm_transfer_options> read_transfer_options(const gshm_transfer_options* options, uint32_t flags) {
    const auto chosen = TRY(read_options(options));
    TRY(check_flags(chosen.flags, flags, "transfer"));
    return chosen;
}

Result<gshm_transfer_info> transfer(gshm_object& object, uint32_t operation, const FileRange& range,
                                    const gshm_transfer_options& options) {
    TRY(object.check_use());
    return Transfer(object, operation, range, options).run();
}

Status TransferProgress::tell(uint64_t done_bytes, uint64_t total_bytes) const {
    if (options_.progress == nullptr) return {};
    if (options_.progress(options_.context, done_bytes, total_bytes) == 0) return {};
    return fail(ECANCELED, "the transfer was stopped");
}

Status TransferProgress::moved(uint64_t done_bytes, uint64_t total_bytes) const {
    return tell(verifies_ && total_bytes > 0 ? done_bytes / 2 : done_bytes, total_bytes);
}

Status TransferProgress::compared(uint64_t done_bytes, uint64_t total_bytes) const {
    return tell(total_bytes / 2 + done_bytes - done_bytes / 2, total_bytes);
}

gshm_transfer_options TransferProgress::for_transfer() {
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.context = this;
    options.progress = [](void* context, uint64_t done, uint64_t total) {
        return static_cast<const TransferProgress*>(context)->moved(done, total) ? 0 : 1;
    };
    return options;
}

}  // namespace gshm::core::client
