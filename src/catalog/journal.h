// The journal of the catalog: committed rows that its file does not have yet, in memory that outlives gshmd. A commit is
// one copy into this memory; the rows go to the file later, many in one transaction. A start applies the rest.
//
// The memory is a ring of entries. An entry is visible as a whole or not at all: its bytes are stored before `end`. One
// thread appends, one reads and drops, at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace gshm::core {

class Journal {
public:
    // Zeros are an empty journal. A multiple of 8 bytes.
    explicit Journal(std::span<std::byte> memory);

    // Before an entry is read from memory of an earlier process. EUCLEAN: it is no journal.
    Status check() const;
    bool is_empty() const { return begin() == end(); }
    // The places of the first entry and after the last one. They count bytes since the journal was made.
    uint64_t begin() const { return head().begin.load(std::memory_order_acquire); }
    uint64_t end() const { return head().end.load(std::memory_order_acquire); }
    uint64_t capacity() const { return capacity_; }
    // False: there is no room for it before entries are dropped.
    bool append(std::string_view rows);
    // Calls `on_entry` for all entries, oldest first, and returns the place after the last of them. EUCLEAN: an entry is
    // damaged.
    template <typename OnEntry>
    Result<uint64_t> each(OnEntry&& on_entry) const {
        uint64_t at = begin();
        const uint64_t stop = end();
        while (at != stop) {
            const std::string_view rows = TRY(entry(at, stop));
            if (!rows.empty()) TRY(on_entry(rows));
            at = after(at);
        }
        return stop;
    }
    // The oldest entry, and the place after it. It is not empty.
    Result<std::pair<std::string_view, uint64_t>> first() const {
        const uint64_t at = begin();
        return std::pair(TRY(entry(at, end())), after(at));
    }
    // The file has the entries before that place.
    void drop(uint64_t place) { head().begin.store(place, std::memory_order_release); }
    void clear();  // a kill in between damages it

private:
    struct Head {
        std::atomic<uint64_t> begin;
        std::atomic<uint64_t> end;
    };
    struct Entry {
        uint64_t bytes;  // kSkip: the next entry is at the start of the ring
        uint64_t sum;
    };
    static constexpr uint64_t kSkip = UINT64_MAX;

    static uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }
    Head& head() const { return *reinterpret_cast<Head*>(memory_.data()); }
    std::byte* at(uint64_t place) const { return memory_.data() + sizeof(Head) + place % capacity_; }
    uint64_t until_start(uint64_t place) const { return capacity_ - place % capacity_; }
    // Empty: it is skipped.
    Result<std::string_view> entry(uint64_t place, uint64_t stop) const;
    uint64_t after(uint64_t place) const;

    std::span<std::byte> memory_;
    uint64_t capacity_;
};

}  // namespace gshm::core
