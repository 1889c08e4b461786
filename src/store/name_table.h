// The entries of one directory by name: a flat table of (hash, link), so that a lookup in a large directory costs two
// cache misses (the slot, and the node whose first link lies in it) and not the five of a chained map.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gshm::core {

struct Link;

class NameTable {
public:
    Link* find(std::string_view name) const;
    // Prefetches for a later lookup: first the slot, then, once the slot is in the cache, the node.
    void fetch_slot(std::string_view name) const;
    void fetch_node(std::string_view name) const;
    // The name must not exist yet.
    void insert(Link* link);
    // The link must be in the table.
    void erase(const Link* link);

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

private:
    struct Slot {
        uint64_t hash = 0;
        Link* link = nullptr;  // null: free
    };
    // Linear probing, at most half full, so that runs stay short. Without tombstones: see erase().
    void grow();

    std::vector<Slot> slots_;  // their number is a power of two, or 0
    size_t size_ = 0;
};

}  // namespace gshm::core
