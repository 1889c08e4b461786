#include "store/node.h"

#include <algorithm>
#include <cassert>

namespace gshm {

uint64_t EntryOrder::add(Node* node) {
    entries_.push_back({next_cookie_, node});
    return next_cookie_++;
}

std::vector<EntryOrder::Entry>::const_iterator EntryOrder::find(uint64_t cookie) const {
    return std::lower_bound(entries_.begin(), entries_.end(), cookie,
                            [](const Entry& entry, uint64_t wanted) { return entry.cookie < wanted; });
}

void EntryOrder::remove(uint64_t cookie) {
    auto found = find(cookie);
    assert(found != entries_.end() && found->cookie == cookie && found->node != nullptr);
    entries_[static_cast<size_t>(found - entries_.begin())].node = nullptr;
    // Gaps stay until they are the larger part: then one sweep pays for many removals.
    if (2 * ++removed_ <= entries_.size()) return;
    std::erase_if(entries_, [](const Entry& entry) { return entry.node == nullptr; });
    removed_ = 0;
}

std::vector<const Node*> EntryOrder::after(uint64_t cookie, size_t most, uint64_t* ret_cookie) const {
    std::vector<const Node*> nodes;
    auto entry = find(cookie + 1);
    uint64_t last = cookie;
    for (; entry != entries_.end() && nodes.size() < most; ++entry) {
        if (entry->node == nullptr) continue;
        fetch(entry->node);
        nodes.push_back(entry->node);
        last = entry->cookie;
    }
    bool more = std::any_of(entry, entries_.end(), [](const Entry& rest) { return rest.node != nullptr; });
    *ret_cookie = more ? last : 0;
    return nodes;
}

void fetch(const Node* node) {
    const char* bytes = reinterpret_cast<const char*>(node);
    for (size_t line = 0; line < sizeof(Object); line += 64) __builtin_prefetch(bytes + line);
}

}  // namespace gshm
