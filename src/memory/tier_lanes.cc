#include "memory/tier_lanes.h"

#include <algorithm>

#include "snapshot/chunk.h"

namespace gshm::core {
namespace {

// Enough for a disk that needs many requests at once, while some threads compute checksums.
unsigned lane_count() {
    constexpr unsigned kFewest = 8;
    constexpr unsigned kMost = 16;
    return std::clamp(std::thread::hardware_concurrency(), kFewest, kMost);
}

}  // namespace

// With the first run: a folder that is not used costs nothing.
Status TierLanes::start() {
    if (worker_) return {};
    const unsigned count = lane_count();
    constexpr size_t kHugePage = size_t{2} << 20;
    memory_ = TRY(PinnedMemory::map(count * kSnapshotChunkBytes, {.alignment = kHugePage}));
    for (unsigned i = 0; i < count; ++i) {
        const auto raw = memory_.bytes().subspan(i * kSnapshotChunkBytes, kSnapshotChunkBytes);
        lanes_.emplace_back(new Lane{raw, std::nullopt, Compressor(level_), Decompressor()});
        free_.push_back(lanes_.back().get());
    }
    worker_ = std::make_unique<Worker>(count);
    return {};
}

Status TierLanes::pin(Device& device) {
    {
        MutexLock lock(mutex_);
        TRY(start());
    }
    return memory_.pin(device);
}

Status TierLanes::run(uint64_t first, uint64_t count, const Step& step) {
    if (count == 0) return {};
    Run run{step, first, first + count};
    MutexLock lock(mutex_);
    TRY(start());
    run.tasks = static_cast<unsigned>(std::min<uint64_t>(lanes_.size(), count));
    for (unsigned i = 0; i < run.tasks; ++i) worker_->submit([this, &run] { take_turn(run); });
    while (run.tasks > 0) lock.wait(run.done);
    return std::move(run.status);
}

void TierLanes::take_turn(Run& run) {
    MutexLock lock(mutex_);
    if (run.next < run.end && run.status) {
        Lane& lane = *free_.back();
        free_.pop_back();
        const uint64_t chunk = run.next++;
        lock.unlock();
        auto status = run.step(chunk, lane);
        lock.lock();
        free_.push_back(&lane);
        if (!status && run.status) run.status = std::move(status);
        // Behind the turns of other runs.
        if (run.next < run.end && run.status) return worker_->submit([this, &run] { take_turn(run); });
    }
    if (--run.tasks == 0) run.done.notify_one();
}

}  // namespace gshm::core
