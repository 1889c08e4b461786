#include "store/name_table.h"

#include <cassert>

#include "base/keyed_hash.h"
#include "store/node.h"

namespace gshm::core {
namespace {

uint64_t hash_of(std::string_view name) {
    return keyed_hash(name);  // keyed, since users choose the names
}

}  // namespace

Link* NameTable::find(std::string_view name) const {
    if (slots_.empty()) return nullptr;
    const size_t mask = slots_.size() - 1;
    const uint64_t hash = hash_of(name);
    for (size_t at = hash & mask; slots_[at].link != nullptr; at = (at + 1) & mask) {
        if (slots_[at].hash == hash && slots_[at].link->name == name) return slots_[at].link;
    }
    return nullptr;
}

void NameTable::fetch_slot(std::string_view name) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash_of(name) & (slots_.size() - 1)]);
}

void NameTable::fetch_node(std::string_view name) const {
    if (slots_.empty()) return;
    const uint64_t hash = hash_of(name);
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.hash == hash) fetch(slot.link);
}

void NameTable::insert(Link* link) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    const uint64_t hash = hash_of(link->name);
    size_t at = hash & mask;
    while (slots_[at].link != nullptr) at = (at + 1) & mask;
    slots_[at] = {hash, link};
    ++size_;
}

void NameTable::erase(const Link* link) {
    const size_t mask = slots_.size() - 1;
    size_t hole = hash_of(link->name) & mask;
    while (slots_[hole].link != link) {
        assert(slots_[hole].link != nullptr);
        hole = (hole + 1) & mask;
    }
    // Entries after the hole whose home slot is not after it move up, so that no run is broken.
    for (size_t at = (hole + 1) & mask; slots_[at].link != nullptr; at = (at + 1) & mask) {
        size_t home = slots_[at].hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        slots_[hole] = slots_[at];
        hole = at;
    }
    slots_[hole] = {};
    if (--size_ == 0) slots_ = {};
}

void NameTable::grow() {
    std::vector<Slot> old(slots_.empty() ? 8 : 2 * slots_.size());
    old.swap(slots_);
    const size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
        if (slot.link == nullptr) continue;
        size_t at = slot.hash & mask;
        while (slots_[at].link != nullptr) at = (at + 1) & mask;
        slots_[at] = slot;
    }
}

}  // namespace gshm::core
