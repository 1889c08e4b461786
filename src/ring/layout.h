// The layout of a ring's shared memory: a header, the entries, the completions. docs/ring.md documents it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gshm::core::ring {

inline constexpr uint32_t kMagic = 0x52485347;  // "GSHR"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 4096;

// Counters run modulo 2^32; the position of an item is its counter modulo the number of entries. Fields written by
// different sides are in different cache lines.
struct Header {
    uint32_t magic;
    uint32_t version;
    uint32_t entries;  // a power of two
    uint32_t reserved;

    // ---- written by the client ----
    alignas(64) std::atomic<uint32_t> submitted;  // number of entries written
    std::atomic<uint32_t> taken;                  // number of completions read
    std::atomic<uint32_t> wake_at;                // the client sleeps until `completed` reaches this,
    std::atomic<uint32_t> waiting;                // if this is 1; the daemon sets it to 0 when it wakes the client

    // ---- written by the daemon ----
    alignas(64) std::atomic<uint32_t> accepted;  // number of entries read
    std::atomic<uint32_t> completed;             // number of completions written; a futex
    std::atomic<uint32_t> asleep;                // 1: the doorbell is needed to wake the daemon
};

enum class Operation : uint32_t { read = 1, write = 2 };  // file to object; object to file

struct Entry {
    uint32_t operation;
    uint32_t token;  // returned with the completion
    uint32_t file;   // registered slots
    uint32_t object;
    uint64_t file_offset;
    uint64_t object_offset;
    uint64_t bytes;
    uint64_t reserved[3];
};

struct Completion {
    int64_t result;  // bytes, or -errno
    uint32_t token;
    uint32_t path;  // io::Path
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
    Entry& entry(uint32_t counter) const { return reinterpret_cast<Entry*>(memory_ + kHeaderBytes)[counter & mask_]; }
    Completion& completion(uint32_t counter) const {
        return reinterpret_cast<Completion*>(memory_ + kHeaderBytes + entries() * sizeof(Entry))[counter & mask_];
    }
    uint32_t entries() const { return mask_ + 1; }

private:
    std::byte* memory_ = nullptr;
    uint32_t mask_ = 0;
};

}  // namespace gshm::core::ring
