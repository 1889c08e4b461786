#include "memory/bulk_copy.h"

#include <algorithm>
#include <condition_variable>
#include <semaphore>
#include <thread>

#include "base/guarded_copy.h"
#include "base/log.h"
#include "device/copier.h"

namespace gshm::core {
namespace {

// Sixteen threads fill a PCIe 5 x16 bus. Chunks of all threads together stay in the processor's cache.
constexpr unsigned kMostThreads = 16;

Copier* copier_of(const Extent& extent) {
    return const_cast<Extent&>(extent).copier();
}

template <typename Begin>
Status wait_for(Begin&& begin) {
    struct Outcome {
        std::binary_semaphore ended{0};
        Status status;
    };
    // Shared: the thread of the copier may still be in release() when this returns.
    auto outcome = std::make_shared<Outcome>();
    begin([outcome](Status status) {
        outcome->status = std::move(status);
        outcome->ended.release();
    });
    outcome->ended.acquire();
    return std::move(outcome->status);
}

// Threads that write() to one file wait for each other in the kernel; those that write to its mapping do not.
Result<Mapping> map_file(Extent& extent) {
    const UniqueFd fd = TRY(extent.export_fd(Access::write));
    return Mapping::create(fd.get(), extent.size(), true);
}

}  // namespace

struct BulkCopy::Copy {
    Extent& to;
    uint64_t to_offset;
    const Extent& from;
    uint64_t from_offset;
    Copier* in;    // of `to`; null: ordinary memory
    Copier* out;   // of `from`
    Mapping file;  // `to`, if it is a file
    Mutex mutex;
    std::condition_variable piece_ended;
    size_t under_way GUARDED_BY(mutex) = 0;
    Status status GUARDED_BY(mutex);
};

void BulkCopy::start() {
    MutexLock lock(mutex_);
    if (std::exchange(started_, true)) return;
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 2u, kMostThreads);
    auto memory = PinnedMemory::map(threads * kPieceBytes, {.numa_node = gpu_->info().numa_node, .populate = true});
    if (!memory) return log_warning("copies between tiers are slow: {}", memory.error().message);
    memory_ = std::move(*memory);
    if (auto pinned = memory_.pin(*gpu_); !pinned)
        log_warning("copies between tiers are slow: {}", pinned.error().message);
    for (unsigned i = 0; i < threads; ++i) chunks_.push_back(memory_.bytes().subspan(i * kPieceBytes, kPieceBytes));
    threads_ = std::make_unique<Worker>(threads);
}

Status BulkCopy::copy_piece(const Copy& copy, uint64_t at, uint64_t bytes, std::span<std::byte> chunk) {
    chunk = chunk.first(bytes);
    if (copy.out != nullptr) {
        TRY(wait_for([&](auto done) {
            copy.out->copy_out(chunk.data(), copy.from.address() + copy.from_offset + at, bytes, std::move(done));
        }));
    } else {
        TRY(copy.from.copy_out(copy.from_offset + at, chunk));
    }
    if (copy.file.data() != nullptr) {
        // The file has no memory yet.
        if (guarded_copy(copy.file.data() + copy.to_offset + at, chunk.data(), bytes)) return {};
        return fail(ENOSPC, "host memory is full");
    }
    if (copy.in == nullptr) return copy.to.copy_in(copy.to_offset + at, chunk);
    return wait_for([&](auto done) {
        copy.in->copy_in(copy.to.address() + copy.to_offset + at, chunk.data(), bytes, std::move(done));
    });
}

Status BulkCopy::copy(Extent& to, uint64_t to_offset, const Extent& from, uint64_t from_offset, uint64_t bytes,
                      const Check& check) {
    Copier* in = copier_of(to);
    Copier* out = copier_of(from);
    // Between two GPUs, and in ordinary memory, a chunk would be in the way.
    if (const bool direct = (in == nullptr) == (out == nullptr); !direct && gpu_ != nullptr) start();
    if ((in == nullptr) == (out == nullptr) || !threads_) {
        constexpr uint64_t kDirectBytes = uint64_t{64} << 20;
        for (uint64_t at = 0; at < bytes; at += kDirectBytes) {
            TRY(check());
            TRY(to.copy_from(to_offset + at, from, from_offset + at, std::min(kDirectBytes, bytes - at)));
        }
        return {};
    }
    if (from_offset + bytes > from.size() || to_offset + bytes > to.size()) {
        return fail(EINVAL, "{} bytes are beyond the end of their memory", bytes);
    }
    Copy work{to, to_offset, from, from_offset, in, out, {}, {}, {}, 0, {}};
    if (to.file() != nullptr) work.file = TRY(map_file(to));
    // Pieces of several copies take turns: each has a few in the queue.
    constexpr size_t kQueued = 2 * kMostThreads;
    for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
        const uint64_t piece = std::min(kPieceBytes, bytes - at);
        Status good = check();
        {
            MutexLock lock(work.mutex);
            if (!good && work.status) work.status = std::move(good);
            while (work.status && work.under_way >= kQueued) lock.wait(work.piece_ended);
            if (!work.status) break;
            ++work.under_way;
        }
        threads_->submit([this, &work, at, piece] {
            std::span<std::byte> chunk;
            {
                MutexLock lock(mutex_);
                chunk = chunks_.back();
                chunks_.pop_back();
            }
            Status copied = copy_piece(work, at, piece, chunk);
            {
                MutexLock lock(mutex_);
                chunks_.push_back(chunk);
            }
            MutexLock lock(work.mutex);
            if (!copied && work.status) work.status = std::move(copied);
            --work.under_way;
            work.piece_ended.notify_all();
        });
    }
    MutexLock lock(work.mutex);
    while (work.under_way > 0) lock.wait(work.piece_ended);
    return std::move(work.status);
}

}  // namespace gshm::core
