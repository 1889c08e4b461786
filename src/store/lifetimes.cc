#include "store/lifetimes.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/limits.h"
#include "base/size.h"
#include "store/evictables.h"

namespace gshm::core {
namespace {

bool counts_from_use(const Object& object) {
    return (object.flags & kCreateTtlUnused) != 0;
}

bool is_in_budget(const Object& object) {
    return (object.flags & (kPinned | kPinnedByAdmin)) == kPinned;
}

}  // namespace

void DeleteLifetime::operator()(Lifetime* lifetime) const {
    delete lifetime;
}

void Store::note_use(Lifetime& lifetime) const {
    if (counts_from_use(lifetime.object)) lifetime.from_ns.store(clock_.steady_ns(), std::memory_order_relaxed);
}

int64_t expires_ns(const Object& object, const Clock& clock) {
    const Lifetime* lifetime = object.lifetime.get();
    if (lifetime == nullptr || lifetime->ttl_ns == 0 || object.links == 0 || (object.flags & kPinned) != 0) return 0;
    if (counts_from_use(object) && object.leases.load(std::memory_order_relaxed) > 0) return 0;
    return std::max<int64_t>(clock.now_ns() + lifetime->end_ns() - clock.steady_ns(), 1);
}

Lifetime& Lifetimes::of(Object& object) {
    if (object.lifetime == nullptr) object.lifetime.reset(new Lifetime(object));
    return *object.lifetime;
}

void Lifetimes::drop_if_empty(Object& object) {
    if (object.lifetime != nullptr && object.lifetime->ttl_ns == 0 && !is_in_budget(object)) object.lifetime.reset();
}

// ---- ttls ----

Status Lifetimes::check_ttl(int64_t ttl_ns) {
    if (ttl_ns >= 0 && static_cast<uint64_t>(ttl_ns) / 1'000'000 <= limits::kTtlMs) return {};
    return fail(EINVAL, "a ttl has at most {} days", limits::kTtlMs / 1000 / 3600 / 24);
}

void Lifetimes::set_ttl(Object& object, int64_t ttl_ns, bool unused) {
    if (ttl_ns == 0 && object.lifetime == nullptr) return;
    Lifetime& lifetime = of(object);
    unqueue(lifetime);
    lifetime.ttl_ns = ttl_ns;
    lifetime.from_ns.store(store_.clock_.steady_ns(), std::memory_order_relaxed);
    object.flags &= ~uint32_t{kCreateTtlUnused};
    if (unused && ttl_ns != 0) object.flags |= kCreateTtlUnused;
    queue(lifetime);
    store_.nodes_.changed(&object);
    drop_if_empty(object);
}

void Lifetimes::named(Object& object) {
    object.reclaim = ReclaimReason::unlinked;
    if (object.lifetime == nullptr || object.lifetime->ttl_ns == 0) return;
    object.lifetime->from_ns.store(store_.clock_.steady_ns(), std::memory_order_relaxed);
    queue(*object.lifetime);
}

void Lifetimes::unnamed(Object& object) {
    if (object.lifetime != nullptr) unqueue(*object.lifetime);
    end_pin(object);
}

void Lifetimes::restored(Object& object) {
    if (is_in_budget(object) && object.links > 0) {
        // Without a check: the budget may have become smaller.
        count(of(object), object.size_bytes);
    } else if (is_in_budget(object)) {
        object.flags &= ~kPinned;
    }
    if (object.lifetime == nullptr) return;
    Lifetime& lifetime = *object.lifetime;
    const int64_t now = store_.clock_.steady_ns();
    if (counts_from_use(object) || lifetime.from_ns > now) lifetime.from_ns = now;
    queue(lifetime);
    drop_if_empty(object);
}

// ---- pins ----

uint64_t Lifetimes::pin_budget(DeviceIndex device) const {
    const unsigned share = pin_share_.load(std::memory_order_relaxed);
    if (share == kNoLimit) return UINT64_MAX;
    const uint64_t capacity = store_.devices_[device].capacity_bytes;
    return capacity / 100 * share + capacity % 100 * share / 100;
}

uint64_t Lifetimes::pinned_bytes(DeviceIndex device, uid_t uid) const {
    if (device >= pinned_.size()) return 0;
    auto found = pinned_[device].find(uid);
    return found == pinned_[device].end() ? 0 : found->second;
}

Status Lifetimes::check_budget(DeviceIndex device, uid_t uid, uint64_t bytes) const {
    const uint64_t budget = pin_budget(device);
    const uint64_t used = pinned_bytes(device, uid);
    if (used <= budget && bytes <= budget - used) return {};
    return fail(EDQUOT,
                "an owner may pin {} on {}, {} % of it (`gshmd --pin-share`), and has pinned {}: {} more are too many. "
                "Root may pin it",
                size_text(budget), store_.devices_[device].name, pin_share_.load(std::memory_order_relaxed),
                size_text(used), size_text(bytes));
}

Status Lifetimes::check_move(const Object& object, DeviceIndex to) const {
    if (!is_in_budget(object) || object.lifetime->pinned_on == to) return {};
    return check_budget(to, object.uid, object.size_bytes);
}

void Lifetimes::count(Lifetime& lifetime, uint64_t bytes) {
    lifetime.pinned_on = lifetime.object.home();
    lifetime.pinned_by = lifetime.object.uid;
    lifetime.pinned_bytes = bytes;
    if (pinned_.size() <= lifetime.pinned_on) pinned_.resize(lifetime.pinned_on + 1);
    if (bytes > 0) pinned_[lifetime.pinned_on][lifetime.pinned_by] += bytes;
}

void Lifetimes::uncount(Lifetime& lifetime) {
    if (lifetime.pinned_bytes == 0) return;
    auto& users = pinned_[lifetime.pinned_on];
    auto found = users.find(lifetime.pinned_by);
    assert(found != users.end() && found->second >= lifetime.pinned_bytes);
    found->second -= std::exchange(lifetime.pinned_bytes, 0);
    if (found->second == 0) users.erase(found);
}

Status Lifetimes::pin(Object& object, const Credentials& who) {
    const bool admin = is_admin(who);
    if (!admin && who.uid != object.uid) {
        return fail(EPERM, "only the object's owner, root and the user who runs gshmd may pin it");
    }
    if ((object.flags & kPinned) != 0 && (!admin || (object.flags & kPinnedByAdmin) != 0)) return {};
    if (!admin) TRY(check_budget(object.home(), object.uid, object.size_bytes));
    if (object.lifetime != nullptr) {
        uncount(*object.lifetime);
        unqueue(*object.lifetime);
    }
    object.flags |= admin ? kPinned | kPinnedByAdmin : kPinned;
    if (!admin) count(of(object), object.size_bytes);
    store_.nodes_.changed(&object);
    drop_if_empty(object);
    store_.accounts_.update(object);
    return {};
}

Status Lifetimes::unpin(Object& object, const Credentials& who) {
    const bool admin = is_admin(who);
    if (!admin && who.uid != object.uid) {
        return fail(EPERM, "only the object's owner, root and the user who runs gshmd may unpin it");
    }
    if (!admin && (object.flags & kPinnedByAdmin) != 0) {
        return fail(EPERM, "root or the user who runs gshmd has pinned the object, and they alone unpin it");
    }
    end_pin(object);
    return {};
}

void Lifetimes::end_pin(Object& object) {
    if ((object.flags & kPinned) == 0) return;
    if (object.lifetime != nullptr) uncount(*object.lifetime);
    object.flags &= ~(kPinned | kPinnedByAdmin);
    if (object.lifetime != nullptr) queue(*object.lifetime);
    store_.nodes_.changed(&object);
    drop_if_empty(object);
    store_.accounts_.update(object);
    store_.evictables_->add(object);
}

void Lifetimes::account(Object& object) {
    if (!is_in_budget(object) || object.links == 0) return;
    Lifetime& lifetime = *object.lifetime;
    if (lifetime.pinned_by != object.uid) {
        uncount(lifetime);
        object.flags |= kPinnedByAdmin;
        store_.nodes_.changed(&object);
        return drop_if_empty(object);
    }
    if (lifetime.pinned_on == object.home() && lifetime.pinned_bytes == object.size_bytes) return;
    const bool grows = lifetime.pinned_on != object.home() || object.size_bytes > lifetime.pinned_bytes;
    uncount(lifetime);
    if (grows && !check_budget(object.home(), object.uid, object.size_bytes)) return end_pin(object);
    count(lifetime, object.size_bytes);
}

// ---- the queue ----

void Lifetimes::queue(Lifetime& lifetime) {
    lifetime.parked = false;
    const bool expires = lifetime.ttl_ns != 0 && lifetime.object.links > 0 && (lifetime.object.flags & kPinned) == 0;
    if (expires) queue_at(lifetime, lifetime.end_ns());
    else unqueue(lifetime);
}

void Lifetimes::queue_at(Lifetime& lifetime, int64_t due_ns) {
    lifetime.due_ns = due_ns;
    if (lifetime.position == Lifetime::kNone) {
        queue_.push_back(&lifetime);
        lifetime.position = static_cast<uint32_t>(queue_.size() - 1);
    }
    rise(lifetime.position);
    sink(lifetime.position);
    wake();
}

void Lifetimes::unqueue(Lifetime& lifetime) {
    lifetime.parked = false;
    const size_t at = std::exchange(lifetime.position, Lifetime::kNone);
    if (at == Lifetime::kNone) return;
    Lifetime* last = queue_.back();
    queue_.pop_back();
    if (last == &lifetime) return;
    set(at, last);
    rise(at);
    sink(last->position);
}

void Lifetimes::rise(size_t at) {
    Lifetime* moving = queue_[at];
    for (size_t above = 0; at > 0 && queue_[above = (at - 1) / 2]->due_ns > moving->due_ns; at = above) {
        set(at, queue_[above]);
    }
    set(at, moving);
}

void Lifetimes::sink(size_t at) {
    Lifetime* moving = queue_[at];
    for (;;) {
        size_t below = 2 * at + 1;
        if (below >= queue_.size()) break;
        if (below + 1 < queue_.size() && queue_[below + 1]->due_ns < queue_[below]->due_ns) ++below;
        if (queue_[below]->due_ns >= moving->due_ns) break;
        set(at, queue_[below]);
        at = below;
    }
    set(at, moving);
}

// ---- expiry ----

std::optional<int64_t> Lifetimes::next_due() const {
    if (!orphans_.empty()) return 0;
    if (queue_.empty()) return std::nullopt;
    return queue_.front()->due_ns;
}

void Lifetimes::wake() {
    if (!wake_) return;
    const auto due = next_due();
    if (!due || (told_ && *told_ <= *due)) return;
    told_ = due;
    wake_(*due);
}

void Lifetimes::orphan(SessionId creator, Object* first) {
    if (first == nullptr) return;
    orphans_.emplace(creator, first);
    wake();
}

// Looks at the first of the queue, which is due, and gives it another place there if it does not expire yet.
bool Lifetimes::is_due(Lifetime& lifetime, int64_t now_ns) {
    const Object& object = lifetime.object;
    if (!counts_from_use(object)) return true;
    if (object.leases.load(std::memory_order_relaxed) == 0) {
        if (lifetime.end_ns() <= now_ns) return true;
        queue_at(lifetime, lifetime.end_ns());
    } else if (lifetime.end_ns() > lifetime.due_ns) {
        // Used since it was queued. It is looked at again when it would end if it were released now.
        queue_at(lifetime, now_ns + lifetime.ttl_ns);
    } else {
        // Held without further uses, perhaps for days. Its release queues it again.
        unqueue(lifetime);
        lifetime.parked = true;
    }
    return false;
}

size_t Lifetimes::remove(Object& object, size_t most) {
    size_t removed = 0;
    for (bool last = false; !last && removed < most; ++removed) {
        auto* link = const_cast<Link*>(object.any_link());
        Directory* parent = link->parent;
        last = object.links == 1;
        store_.tree_.remove(link, Tree::Removal::expired);
        store_.tree_.prune(parent);
    }
    if (object.links == 0) {
        object.reclaim = ReclaimReason::ttl;
        store_.unlinked(&object);
    }
    return removed;
}

bool Lifetimes::expire(size_t most) {
    told_ = INT64_MIN;  // no wake() meanwhile
    size_t looked_at = 0;
    while (!orphans_.empty() && looked_at < most) {
        auto [creator, object] = *orphans_.begin();
        if (object == nullptr) {
            orphans_.erase(orphans_.begin());
            continue;
        }
        ++looked_at;
        store_.forget_creator(object);
        object->reclaim = ReclaimReason::client_died;
        if (object->links == 0) continue;
        store_.tree_.detach(object);
        store_.unlinked(object);
    }
    const int64_t now = store_.clock_.steady_ns();
    while (looked_at < most && !queue_.empty() && queue_.front()->due_ns <= now) {
        Lifetime& first = *queue_.front();
        if (is_due(first, now)) looked_at += remove(first.object, most - looked_at);
        else ++looked_at;
    }
    told_ = next_due();
    return told_ && *told_ <= now;
}

}  // namespace gshm::core
