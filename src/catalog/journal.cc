#include "catalog/journal.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gshm::core {

Journal::Journal(std::span<std::byte> memory) : memory_(memory), capacity_(memory.size() - sizeof(Head)) {
    assert(memory.size() % 8 == 0 && memory.size() > sizeof(Head) + sizeof(Entry));
}

Status Journal::check() const {
    const uint64_t first = begin(), last = end();
    if (first > last || last - first > capacity_ || first % 8 != 0 || last % 8 != 0) {
        return fail(EUCLEAN, "the journal of the catalog is damaged");
    }
    return {};
}

void Journal::clear() {
    head().begin.store(0, std::memory_order_release);
    head().end.store(0, std::memory_order_release);
}

bool Journal::append(std::string_view rows) {
    uint64_t place = end();
    const uint64_t needed = sizeof(Entry) + padded(rows.size());
    // An entry is in one piece. The rest of the ring is skipped if it is too short; it holds 8 bytes at least.
    const uint64_t skipped = until_start(place) < needed ? until_start(place) : 0;
    if (needed > capacity_ || place + skipped + needed - begin() > capacity_) return false;
    if (skipped > 0) {
        memcpy(at(place), &kSkip, sizeof kSkip);
        place += skipped;
    }
    const Entry entry{rows.size(), XXH3_64bits(rows.data(), rows.size())};
    memcpy(at(place), &entry, sizeof entry);
    memcpy(at(place) + sizeof entry, rows.data(), rows.size());
    head().end.store(place + needed, std::memory_order_release);
    return true;
}

Result<std::string_view> Journal::entry(uint64_t place, uint64_t stop) const {
    uint64_t bytes = 0;
    memcpy(&bytes, at(place), sizeof bytes);
    const uint64_t room = std::min(until_start(place), stop - place);
    if (bytes == kSkip && until_start(place) <= stop - place) return std::string_view();
    Entry entry = {};
    if (room >= sizeof entry) memcpy(&entry, at(place), sizeof entry);
    const bool fits = room >= sizeof entry && entry.bytes > 0 && entry.bytes <= room - sizeof entry;
    const std::string_view rows(reinterpret_cast<const char*>(at(place)) + sizeof entry, fits ? entry.bytes : 0);
    if (!fits || XXH3_64bits(rows.data(), rows.size()) != entry.sum) {
        return fail(EUCLEAN, "an entry of the catalog's journal is damaged");
    }
    return rows;
}

uint64_t Journal::after(uint64_t place) const {
    uint64_t bytes = 0;
    memcpy(&bytes, at(place), sizeof bytes);
    return bytes == kSkip ? place + until_start(place) : place + sizeof(Entry) + padded(bytes);
}

}  // namespace gshm::core
