#include "store/node.h"

#include <algorithm>
#include <cassert>

#include "store/acl.h"

namespace gshm::core {

size_t bytes_of(const Attributes& attributes) {
    size_t bytes = 0;
    for (const auto& [name, value] : attributes) bytes += name.size() + value.size();
    return bytes;
}

Link* Node::new_link() {
    if (first_link.parent == nullptr) return &first_link;
    return further_links.emplace_back(std::make_unique<Link>(this)).get();
}

void Node::drop_link(Link* link) {
    link->parent = nullptr;
    if (link == &first_link) return;
    std::erase_if(further_links, [&](const auto& further) { return further.get() == link; });
}

const Link* Node::any_link() const {
    if (first_link.parent != nullptr) return &first_link;
    return further_links.empty() ? nullptr : further_links.front().get();
}

uint64_t Node::name_bytes() const {
    const uint64_t target = kind == NodeKind::symlink ? static_cast<const Symlink*>(this)->target.size() : 0;
    uint64_t acls = acl ? acl->bytes() : 0;
    if (kind == NodeKind::directory) {
        const auto& inherited = static_cast<const Directory*>(this)->default_acl;
        if (inherited) acls += inherited->bytes();
    }
    // The names of hard links are not added up: there may be very many.
    return limits::kNodeBytes * (1 + further_links.size()) + first_link.name.size() + attribute_bytes + target + acls;
}

Budgets::User& Nodes::user(uid_t uid) {
    if (last_user_ == nullptr || last_user_->uid() != uid) {
        auto& found = users_[uid];
        if (!found) found = budgets_.user(uid);
        last_user_ = found.get();
    }
    return *last_user_;
}

void Nodes::count_again(Node& node, uint32_t bytes) {
    user(node.uid).add(Resource::name_bytes, bytes);
    user(node.counted_uid).give(Resource::name_bytes, node.counted_bytes);
    node.counted_bytes = bytes;
    node.counted_uid = node.uid;
}

Status Nodes::check_room(uid_t uid, uint64_t bytes) {
    if (budgets_.is_folder_full()) {
        return fail(ENOSPC,
                    "gshmd's runtime folder is full: names and attributes can be removed, and none added, until it "
                    "has space again");
    }
    Budgets::User& by = user(uid);
    if (!by.take(Resource::name_bytes, bytes)) return std::unexpected(by.refusal(Resource::name_bytes));
    by.give(Resource::name_bytes, bytes);  // until the node has them
    return {};
}

uint64_t EntryOrder::add(Link* link) {
    entries_.push_back({next_cookie_, link});
    return next_cookie_++;
}

void EntryOrder::put(uint64_t cookie, Link* link) {
    assert(cookie < next_cookie_);
    auto found = entries_.begin() + (find(cookie) - entries_.cbegin());
    if (found == entries_.end() || found->cookie != cookie) {
        entries_.insert(found, {cookie, link});
        return;
    }
    assert(found->link == nullptr);
    found->link = link;
    --removed_;
}

void EntryOrder::restore(Link* link) {
    assert(link->cookie >= next_cookie_);
    entries_.push_back({link->cookie, link});
    next_cookie_ = link->cookie + 1;
}

std::vector<EntryOrder::Entry>::const_iterator EntryOrder::find(uint64_t cookie) const {
    return std::lower_bound(entries_.begin(), entries_.end(), cookie,
                            [](const Entry& entry, uint64_t wanted) { return entry.cookie < wanted; });
}

void EntryOrder::remove(uint64_t cookie) {
    auto found = find(cookie);
    assert(found != entries_.end() && found->cookie == cookie && found->link != nullptr);
    entries_[static_cast<size_t>(found - entries_.begin())].link = nullptr;
    // Gaps stay until they are the majority, so that one sweep serves many removals.
    if (2 * ++removed_ <= entries_.size()) return;
    std::erase_if(entries_, [](const Entry& entry) { return entry.link == nullptr; });
    removed_ = 0;
}

std::vector<const Link*> EntryOrder::after(uint64_t cookie, size_t most, uint64_t* ret_cookie) const {
    std::vector<const Link*> links;
    auto entry = find(cookie + 1);
    uint64_t last = cookie;
    for (; entry != entries_.end() && links.size() < most; ++entry) {
        if (entry->link == nullptr) continue;
        fetch(entry->link);
        links.push_back(entry->link);
        last = entry->cookie;
    }
    bool more = std::any_of(entry, entries_.end(), [](const Entry& rest) { return rest.link != nullptr; });
    *ret_cookie = more ? last : 0;
    return links;
}

std::vector<const Link*> EntryOrder::before(uint64_t cookie, size_t most) const {
    std::vector<const Link*> links;
    for (auto entry = find(cookie); entry != entries_.begin() && links.size() < most;) {
        --entry;
        if (entry->link == nullptr) continue;
        fetch(entry->link);
        links.push_back(entry->link);
    }
    return links;
}

void fetch(const Link* first_link) {
    // A node begins with its first link. The members that replies are made from follow.
    const char* bytes = reinterpret_cast<const char*>(first_link);
    for (size_t line = 0; line < 256; line += 64) __builtin_prefetch(bytes + line);
}

}  // namespace gshm::core
