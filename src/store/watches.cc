#include "store/watches.h"

#include <algorithm>

#include "base/limits.h"
#include "base/name.h"

namespace gshm::core {
namespace {

// Entries that one take() reads at most, so that a long walk does not delay other requests.
constexpr size_t kWalkEntries = 4096;

std::string below(std::string_view path, std::string_view name) {
    return path.empty() ? std::string(name) : std::string(path) + "/" + std::string(name);
}

const Link* entry_at(const Directory& directory, uint64_t cookie) {
    uint64_t next = 0;
    auto links = directory.order.after(cookie - 1, 1, &next);
    return links.empty() || links[0]->cookie != cookie ? nullptr : links[0];
}

}  // namespace

// ---- watches and their queues ----

Status Watches::add(SessionId session, std::string_view prefix, bool existing, std::function<void()> on_ready) {
    TRY(check_name_prefix(prefix));
    if (has(session)) return fail(EBUSY, "a session has one watch: connect again for another");
    const auto user = store_.budgets().user(store_.credentials(session).uid);
    Budgets::Charge charge(user, Resource::watches);
    if (!charge.take(1)) return std::unexpected(charge.refusal());
    if (watches_.empty()) store_.add_listener(this);
    Watch& watch = watches_[session];
    watch.watch = std::move(charge);
    watch.queued_bytes = {user, Resource::event_bytes};
    watch.prefix = prefix;
    watch.known_parts = static_cast<size_t>(std::ranges::count(prefix, '/'));
    watch.on_ready = std::move(on_ready);
    if (existing) watch.walked.emplace();
    return {};
}

void Watches::forget(SessionId session) {
    watches_.erase(session);
    if (watches_.empty()) store_.remove_listener(this);
}

void Watches::wake() {
    if (!std::exchange(awake_, true) && wake_) wake_();
}

void Watches::tell(Watch& watch, WatchEvent event) {
    if (watch.overflowed) return;
    const bool has_room = watch.queued_bytes.amount() + event.cost() <= limits::kWatchQueueBytes;
    if (!has_room || !watch.queued_bytes.take(event.cost())) {
        event = {};
        event.time_ns = store_.clock().now_ns();
        watch.overflowed = true;
        watch.queued_bytes.add(event.cost());
    }
    watch.queue.push_back(std::move(event));
    if (watch.hungry) wake();
}

std::vector<WatchEvent> Watches::take(SessionId session, size_t most_bytes) {
    Watch& watch = watches_.at(session);
    std::vector<WatchEvent> events;
    size_t used = 0;
    while (!watch.queue.empty()) {
        WatchEvent& next = watch.queue.front();
        if (!events.empty() && used + next.cost() > most_bytes) break;
        used += next.cost();
        watch.queued_bytes.give(next.cost());
        if (next.event == EventKind::overflow) watch.overflowed = false;
        events.push_back(std::move(next));
        watch.queue.pop_front();
    }
    const bool more = watch.queue.empty() && watch.walked && used < most_bytes &&
                      report_existing(session, watch, events, most_bytes - used);
    watch.hungry = events.empty();
    if (watch.hungry && more) wake();
    if (watch.queue.empty()) watch.queue.shrink_to_fit();
    return events;
}

void Watches::deliver() {
    awake_ = false;
    std::vector<SessionId> ready;
    for (const auto& [session, watch] : watches_) {
        if (watch.hungry && (!watch.queue.empty() || watch.walked)) ready.push_back(session);
    }
    for (SessionId session : ready) {
        auto found = watches_.find(session);
        if (found != watches_.end()) found->second.on_ready();
    }
}

// ---- visibility ----

bool Watches::may_look_into(SessionId session, const Watch& watch, const Directory& directory, size_t depth) const {
    // As for a listing. Names that the prefix contains need only the right to search, as for a lookup.
    const unsigned rights = kRightExecute | (depth < watch.known_parts ? 0u : unsigned{kRightRead});
    return is_permitted(directory, store_.credentials(session), rights);
}

bool Watches::sees(SessionId session, const Watch& watch, const Link& link, std::string_view path) const {
    if (watch.overflowed || !path.starts_with(watch.prefix) || path.size() > limits::kNameBytes) return false;
    auto depth = static_cast<size_t>(std::ranges::count(path, '/'));
    std::vector<uint64_t> way{link.cookie};
    for (const Directory* at = link.parent;; --depth, at = at->parent()) {
        if (!may_look_into(session, watch, *at, depth)) return false;
        if (at->parent() == nullptr) break;
        if (watch.walked) way.push_back(at->first_link.cookie);
    }
    if (!watch.walked) return true;
    std::ranges::reverse(way);
    return way <= *watch.walked;
}

Watches::Seen Watches::look_at(const Link& link, std::string path) const {
    Seen seen{&link, std::move(path), {}};
    seen.by.reserve(watches_.size());
    for (const auto& [session, watch] : watches_) seen.by.push_back(sees(session, watch, link, seen.path));
    return seen;
}

std::vector<Watches::Seen> Watches::look_below(const Link& link) const {
    std::vector<Seen> all;
    all.push_back(look_at(link, Tree::path_of(link)));
    for (size_t i = 0; i < all.size(); ++i) {
        const auto* directory = as_directory(all[i].link->node);
        if (directory == nullptr) continue;
        uint64_t end = 0;
        for (const Link* child : directory->order.after(0, SIZE_MAX, &end)) {
            all.push_back(look_at(*child, below(all[i].path, child->name)));
        }
    }
    return all;
}

bool Watches::concerns(std::string_view path) const {
    return std::ranges::any_of(watches_, [&](const auto& entry) {
        std::string_view prefix = entry.second.prefix;
        return path.starts_with(prefix) || (prefix.starts_with(path) && prefix[path.size()] == '/');
    });
}

// ---- changes ----

WatchEvent Watches::event_of(EventKind event, const Node& node, std::string_view name) const {
    WatchEvent made;
    made.event = event;
    made.kind = node.kind;
    made.id = node.id;
    made.time_ns = store_.clock().now_ns();
    made.name = name;
    if (node.kind == NodeKind::object) {
        const auto& object = static_cast<const Object&>(node);
        made.state = object.state;
        made.device = object.device;
        made.size_bytes = object.size_bytes;
    } else if (node.kind == NodeKind::symlink) {
        made.size_bytes = static_cast<const Symlink&>(node).target.size();
    }
    return made;
}

void Watches::tell_of_name(const Seen* old, const Seen& now, const std::optional<std::pair<Seen, WatchEvent>>& lost) {
    size_t i = 0;
    for (auto& [session, watch] : watches_) {
        const bool had = old != nullptr && old->by[i];
        const bool loses = lost && lost->first.by[i];
        if (now.by[i]) {
            auto event = event_of(loses ? EventKind::replaced
                                  : had ? EventKind::renamed
                                        : EventKind::created,
                                  *now.link->node, now.path);
            if (loses) event.replaced = lost->second.id;
            if (had) event.old_name = old->path;
            tell(watch, std::move(event));
        } else {
            if (had) tell(watch, event_of(EventKind::deleted, *now.link->node, old->path));
            if (loses) tell(watch, lost->second);
        }
        ++i;
    }
}

void Watches::tell_of_loss(EventKind event, const Link& link) {
    const Seen seen = look_at(link, Tree::path_of(link));
    size_t i = 0;
    for (auto& [session, watch] : watches_) {
        if (seen.by[i++]) tell(watch, event_of(event, *link.node, seen.path));
    }
}

void Watches::replacing(const Link& link) {
    Seen seen = look_at(link, Tree::path_of(link));
    auto event = event_of(EventKind::deleted, *link.node, seen.path);
    replaced_.emplace(std::move(seen), std::move(event));
}

void Watches::added(const Link& link) {
    tell_of_name(nullptr, look_at(link, Tree::path_of(link)), replaced_);
    replaced_.reset();
}

void Watches::moving(const Link& link, const Directory& parent, std::string_view name) {
    moving_.clear();
    const std::string to = parent.parent() == nullptr ? std::string(name) : below(Tree::path_of(parent), name);
    if (concerns(Tree::path_of(link)) || concerns(to)) moving_ = look_below(link);
}

void Watches::moved(const Link& link) {
    if (!moving_.empty()) {
        const auto now = look_below(link);
        tell_of_name(&moving_[0], now[0], replaced_);
        for (size_t i = 1; i < now.size(); ++i) tell_of_name(&moving_[i], now[i], std::nullopt);
    }
    moving_.clear();
    replaced_.reset();
}

void Watches::exchanging(const Link& a, const Link& b) {
    exchanging_[0] = look_below(a);
    exchanging_[1] = look_below(b);
}

void Watches::exchanged(const Link& a, const Link& b) {
    // The same names may exist below both: all removals are reported before all additions.
    for (const auto& names : exchanging_) {
        for (size_t n = 1; n < names.size(); ++n) {
            size_t i = 0;
            for (auto& [session, watch] : watches_) {
                if (names[n].by[i++]) tell(watch, event_of(EventKind::deleted, *names[n].link->node, names[n].path));
            }
        }
    }
    for (const auto& [link, other] : {std::pair{&a, 1}, std::pair{&b, 0}}) {
        const auto now = look_below(*link);
        const Seen& lost = exchanging_[other][0];
        tell_of_name(nullptr, now[0], std::pair{lost, event_of(EventKind::deleted, *lost.link->node, lost.path)});
        for (size_t n = 1; n < now.size(); ++n) tell_of_name(nullptr, now[n], std::nullopt);
    }
    for (auto& names : exchanging_) names.clear();
}

void Watches::sealed(const Object& object) {
    auto tell_all = [&](const Link& link) {
        const Seen seen = look_at(link, Tree::path_of(link));
        size_t i = 0;
        for (auto& [session, watch] : watches_) {
            if (seen.by[i++]) tell(watch, event_of(EventKind::sealed, object, seen.path));
        }
    };
    if (object.first_link.parent != nullptr) tell_all(object.first_link);
    for (const auto& link : object.further_links) tell_all(*link);
}

// ---- existing names ----

const Link* Watches::walk(SessionId session, Watch& watch, std::string* ret_path) const {
    auto& walked = *watch.walked;
    struct Level {
        const Directory* directory;
        std::string path;
    };
    // The directories that lead to the last name, as far as they exist, and that name if it is a directory.
    std::vector<Level> levels;
    if (may_look_into(session, watch, store_.root(), 0)) levels.push_back({&store_.root(), {}});
    for (size_t i = 0; i < walked.size() && levels.size() == i + 1; ++i) {
        const Link* link = entry_at(*levels[i].directory, walked[i]);
        const auto* directory = link == nullptr ? nullptr : as_directory(link->node);
        if (directory == nullptr || !may_look_into(session, watch, *directory, i + 1)) break;
        std::string path = below(levels[i].path, link->name);
        const std::string inside = path + "/";
        if (!watch.prefix.starts_with(inside) && !inside.starts_with(watch.prefix)) break;
        levels.push_back({directory, std::move(path)});
    }
    for (; !levels.empty(); levels.pop_back()) {
        const size_t depth = levels.size() - 1;
        const auto& [directory, path] = levels.back();
        const uint64_t after = depth < walked.size() ? walked[depth] : 0;
        const Link* next = nullptr;
        if (depth < watch.known_parts) {
            // The prefix determines the entry.
            std::string_view rest = watch.prefix;
            std::string_view part = next_part(rest);
            for (size_t i = 0; i < depth; ++i) part = next_part(rest);
            next = directory->children.find(part);
            if (next != nullptr && next->cookie <= after) next = nullptr;
        } else {
            uint64_t end = 0;
            if (auto links = directory->order.after(after, 1, &end); !links.empty()) next = links[0];
        }
        if (next == nullptr) continue;
        walked.resize(depth);
        walked.push_back(next->cookie);
        *ret_path = below(path, next->name);
        return next;
    }
    return nullptr;
}

// False: the walk has ended.
bool Watches::report_existing(SessionId session, Watch& watch, std::vector<WatchEvent>& events, size_t most_bytes) {
    size_t used = 0;
    for (size_t looked = 0; looked < kWalkEntries && used < most_bytes; ++looked) {
        std::string path;
        const Link* link = walk(session, watch, &path);
        if (link == nullptr) {
            watch.walked.reset();
            WatchEvent ready;
            ready.event = EventKind::ready;
            ready.time_ns = store_.clock().now_ns();
            events.push_back(std::move(ready));
            return false;
        }
        if (!path.starts_with(watch.prefix) || path.size() > limits::kNameBytes) continue;
        store_.look_again(*link->node);
        events.push_back(event_of(EventKind::existing, *link->node, path));
        used += events.back().cost();
    }
    return true;
}

}  // namespace gshm::core
