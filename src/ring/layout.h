// What a ring's shared memory looks like: a header, the entries, the completions. docs/ring.md is the document.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gshm::ring {

inline constexpr uint32_t kMagic = 0x52485347;  // "GSHR"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 4096;

// Counters go on for ever, modulo 2^32; a place is a counter modulo the number of entries. What one side writes shares no
// cache line with what the other does.
struct Header {
    uint32_t magic;
    uint32_t version;
    uint32_t entries;  // a power of two
    uint32_t reserved;

    // ---- written by the client ----
    alignas(64) std::atomic<uint32_t> submitted;  // entries that it has filled in
    std::atomic<uint32_t> taken;                  // completions that it has read
    std::atomic<uint32_t> wake_at;                // it sleeps until `completed` has come so far,
    std::atomic<uint32_t> waiting;                // if this is 1; the daemon makes it 0 when it wakes it

    // ---- written by the daemon ----
    alignas(64) std::atomic<uint32_t> accepted;   // entries that it has read
    std::atomic<uint32_t> completed;              // completions that it has filled in; a futex
    std::atomic<uint32_t> asleep;                 // 1: it has to be woken by the doorbell
};

enum class Operation : uint32_t { read = 1, write = 2 };  // from the file into the object; from the object into the file

struct Entry {
    uint32_t operation;
    uint32_t token;   // comes back with the completion
    uint32_t file;    // slots, as they were registered
    uint32_t object;
    uint64_t file_offset;
    uint64_t object_offset;
    uint64_t bytes;
    uint64_t reserved[3];
};

struct Completion {
    int64_t result;  // bytes, or -errno
    uint32_t token;
    uint32_t path;   // io::Path
};

static_assert(sizeof(Header) == 192 && offsetof(Header, submitted) == 64 && offsetof(Header, accepted) == 128);
static_assert(sizeof(Entry) == 64 && offsetof(Entry, file_offset) == 16 && offsetof(Entry, bytes) == 32);
static_assert(sizeof(Completion) == 16 && offsetof(Completion, token) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::endian::native == std::endian::little);

constexpr size_t memory_bytes(uint32_t entries) {
    return kHeaderBytes + size_t{entries} * (sizeof(Entry) + sizeof(Completion));
}

// The parts of a ring's memory.
class View {
public:
    View() = default;
    View(std::byte* memory, uint32_t entries) : memory_(memory), mask_(entries - 1) {}

    Header& header() const { return *reinterpret_cast<Header*>(memory_); }
    Entry& entry(uint32_t counter) const {
        return reinterpret_cast<Entry*>(memory_ + kHeaderBytes)[counter & mask_];
    }
    Completion& completion(uint32_t counter) const {
        return reinterpret_cast<Completion*>(memory_ + kHeaderBytes + entries() * sizeof(Entry))[counter & mask_];
    }
    uint32_t entries() const { return mask_ + 1; }

private:
    std::byte* memory_ = nullptr;
    uint32_t mask_ = 0;
};

}  // namespace gshm::ring
