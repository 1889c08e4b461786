// Memory that bytes pass through on their way between a file and a GPU: one piece, pinned once, handed out in chunks.
// Safe from any thread.
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

namespace gshm::io {

// A part of the staging memory, whoever's has taken it until he gives it back. Begins at a page.
struct Chunk {
    std::byte* data = nullptr;
    size_t bytes = 0;
    explicit operator bool() const { return data != nullptr; }
};

class Staging {
public:
    static constexpr size_t kLargeChunkBytes = size_t{8} << 20;
    static constexpr size_t kSmallChunkBytes = size_t{64} << 10;

    // Pinned for the device (and with it for all GPUs of this process); where that is refused it is not pinned, with a
    // warning that says what to raise, and only slower. Near the device, if the machine has several NUMA nodes.
    // The size is rounded up to whole large chunks. The device must outlive it.
    static Result<std::shared_ptr<Staging>> create(Device& device, size_t size_bytes);
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Whoever was refused a chunk, and hears when one comes back: once, from any thread. Must not wait nor call here.
    class Listener {
    public:
        virtual void chunk_is_back() = 0;

    protected:
        ~Listener() = default;
    };

    // Several users share it, and what one has taken may not come back for long: its file may not answer. Who has some
    // already gets no more than three times what is left then: of all three quarters at most, of the rest the next one
    // likewise.
    using User = uint64_t;
    static constexpr User kAlone = 0;  // who shares with nobody

    // The smallest kind of chunk that holds so many bytes, or the largest kind. None: `listener` will hear. With `any` a
    // smaller one is better than none.
    Chunk take(size_t bytes, bool any, Listener& listener, User user = kAlone) EXCLUDES(mutex_);
    // By the same user.
    void give(Chunk chunk, User user = kAlone) EXCLUDES(mutex_);
    // It hears no more.
    void forget(Listener& listener) EXCLUDES(mutex_);

    // Tries once more, in one thread at a time; chunks may be in use meanwhile.
    Status pin() { return memory_.pin(device_); }

    size_t size() const { return memory_.size(); }
    bool is_pinned() const { return memory_.is_pinned(); }

private:
    static constexpr size_t kChunkBytes[] = {kSmallChunkBytes, size_t{2} << 20, kLargeChunkBytes};
    static constexpr size_t kKinds = 3;
    static constexpr size_t kChunksPerSlab = kLargeChunkBytes / kSmallChunkBytes;

    // Memory of one large chunk, cut into chunks of one kind while any of them is taken.
    struct Slab {
        size_t kind = kKinds - 1;
        size_t taken = 0;
        uint64_t free[kChunksPerSlab / 64] = {};  // a bit for each chunk
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
    std::map<User, size_t> held_bytes_ GUARDED_BY(mutex_);  // of those who have some
    std::vector<Listener*> listeners_ GUARDED_BY(mutex_);
};

}  // namespace gshm::io
