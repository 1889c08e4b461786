// Copies between GPUs and ordinary memory at the speed of the bus: pieces go through pinned memory in several threads,
// since one thread copies ordinary memory at a fraction of that speed. Safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/worker.h"
#include "device/device.h"
#include "device/pinned_memory.h"

namespace gshm::core {

class BulkCopy {
public:
    static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

    // The threads and their memory are made at the first copy. gpu: any device with Copier; null: no device has one.
    explicit BulkCopy(Device* gpu) : gpu_(gpu) {}

    // Before each piece; an error ends the copy with that error.
    using Check = std::function<Status()>;
    // If `to` is a file, no other process may have it yet: one that makes it smaller would end this one.
    Status copy(Extent& to, uint64_t to_offset, const Extent& from, uint64_t from_offset, uint64_t bytes,
                const Check& check) EXCLUDES(mutex_);

private:
    struct Copy;
    void start() EXCLUDES(mutex_);
    static Status copy_piece(const Copy& copy, uint64_t at, uint64_t bytes, std::span<std::byte> chunk);

    Device* gpu_;
    Mutex mutex_;
    bool started_ GUARDED_BY(mutex_) = false;
    PinnedMemory memory_;
    std::vector<std::span<std::byte>> chunks_ GUARDED_BY(mutex_);  // unused; one for each thread
    std::unique_ptr<Worker> threads_;                              // null: no memory for chunks
};

}  // namespace gshm::core
