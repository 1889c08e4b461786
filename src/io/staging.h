// Staging memory between files and GPUs: one region, pinned once, handed out in chunks. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "device/pinned_memory.h"

namespace gshm::core::io {

// A part of the staging memory. Owned by the taker until give(). Page-aligned.
struct Chunk {
    std::byte* data = nullptr;
    size_t bytes = 0;
    explicit operator bool() const { return data != nullptr; }
};

class Staging {
public:
    static constexpr size_t kLargeChunkBytes = size_t{8} << 20;
    static constexpr size_t kSmallChunkBytes = size_t{64} << 10;

    // Pins the memory for the device (and thereby for all GPUs of this process). If that fails, it logs a warning with
    // the limit to raise, and copies are slower. Placed near the device on NUMA machines. The size is rounded up to
    // whole large chunks. The device must outlive it.
    static Result<std::shared_ptr<Staging>> create(Device& device, size_t size_bytes);
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Notified once, from any thread, when a chunk comes back after take() has failed. Must neither block nor call
    // back.
    class Listener {
    public:
        virtual void chunk_is_back() = 0;

    protected:
        ~Listener() = default;
    };

    // Several users share the memory, and a user may hold chunks for long, if its file system does not respond. A user
    // may hold at most three times the free bytes: three quarters of the total; likewise for the next user and the
    // rest.
    using User = uint64_t;
    static constexpr User kAlone = 0;  // a single user

    // A chunk of the smallest kind that holds that many bytes, or of the largest kind. Empty: `listener` is notified
    // later. With `any` a smaller chunk is acceptable.
    Chunk take(size_t bytes, bool any, Listener& listener, User user = kAlone) EXCLUDES(mutex_);
    // By the same user.
    void give(Chunk chunk, User user = kAlone) EXCLUDES(mutex_);
    // No more notifications.
    void forget(Listener& listener) EXCLUDES(mutex_);

    // Tries again, in one thread at a time; chunks may be in use.
    Status pin() { return memory_.pin(device_); }

    size_t size() const { return memory_.size(); }
    bool is_pinned() const { return memory_.is_pinned(); }

private:
    static constexpr size_t kChunkBytes[] = {kSmallChunkBytes, size_t{2} << 20, kLargeChunkBytes};
    static constexpr size_t kKinds = 3;
    static constexpr size_t kChunksPerSlab = kLargeChunkBytes / kSmallChunkBytes;

    // Memory of one large chunk, divided into chunks of one kind while any of them is taken.
    struct Slab {
        size_t kind = kKinds - 1;
        size_t taken = 0;
        uint64_t free[kChunksPerSlab / 64] = {};  // one bit per chunk
    };

    Staging(Device& device, PinnedMemory memory);
    bool may_take(size_t kind, User user) const REQUIRES(mutex_);
    Chunk take_of(size_t kind, User user) REQUIRES(mutex_);
    Chunk take_from(size_t slab) REQUIRES(mutex_);

    Device& device_;
    PinnedMemory memory_;
    Mutex mutex_;
    std::vector<Slab> slabs_ GUARDED_BY(mutex_);
    size_t taken_bytes_ GUARDED_BY(mutex_) = 0;
    std::map<User, size_t> held_bytes_ GUARDED_BY(mutex_);  // of users with chunks
    std::vector<Listener*> listeners_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::io
