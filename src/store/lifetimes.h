// Lifetimes: which objects expire, and when; which are pinned, and in whose budget. docs/lifetimes.md explains it. Times
// are those of Clock::steady_ns(), which no one sets, so a change of the time of day removes nothing. Pure logic, as all
// of the store: the daemon has the timer (daemon/expiry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "store/store.h"

namespace gshm::core {

struct Lifetime {
    explicit Lifetime(Object& of) : object(of) {}

    Object& object;
    int64_t ttl_ns = 0;                // 0: none
    std::atomic<int64_t> from_ns = 0;  // where the ttl begins: its setting, or the last use. Atomic as Object::used_ns
    int64_t due_ns = 0;                // in the queue: the object is looked at then
    uint32_t position = kNone;         // in the queue
    bool parked = false;               // was due while it was held; is queued again at the end of the last lease
    // In the pin budget of that user on that device.
    DeviceIndex pinned_on = 0;
    uid_t pinned_by = 0;
    uint64_t pinned_bytes = 0;
    static constexpr uint32_t kNone = UINT32_MAX;

    int64_t end_ns() const { return from_ns.load(std::memory_order_relaxed) + ttl_ns; }
};

// When the ttl ends by the present time of day, since the epoch. 0: no ttl, pinned, without a name, or in use with
// kCreateTtlUnused. Works under the shared lock.
int64_t expires_ns(const Object& object, const Clock& clock);

class Lifetimes {
public:
    // owner: the user who runs gshmd. Until set_pin_share() users pin without a limit.
    Lifetimes(Store& store, uid_t owner) : store_(store), owner_(owner) {}

    // ---- requests; the caller has found the object ----
    // From now on; 0: the object never expires.
    void set_ttl(Object& object, int64_t ttl_ns, bool unused);
    Status pin(Object& object, const Credentials& who);
    Status unpin(Object& object, const Credentials& who);
    static Status check_ttl(int64_t ttl_ns);

    // ---- pin budgets ----
    // From any thread. Objects that are pinned already stay so.
    void set_pin_share(unsigned percent) { pin_share_.store(percent, std::memory_order_relaxed); }
    // Of each user, on that device.
    uint64_t pin_budget(DeviceIndex device) const;
    uint64_t pinned_bytes(DeviceIndex device, uid_t uid) const;
    // EDQUOT: the object is in its owner's budget, which has no room on that device.
    Status check_move(const Object& object, DeviceIndex to) const;

    // ---- called by the store ----
    // The object has got its first name: a ttl counts from there.
    void named(Object& object);
    // It has lost its last name: it does not expire, and is not pinned any more.
    void unnamed(Object& object);
    // Its last lease has ended.
    void released(Object& object) {
        if (object.lifetime != nullptr && object.lifetime->parked) queue(*object.lifetime);
    }
    // Under the shared lock: the end of the last lease needs the exclusive one, for released().
    static bool awaits_release(const Object& object) { return object.lifetime != nullptr && object.lifetime->parked; }
    // Its size, device or owner has changed. A pin ends that the owner's budget has no room for any more. Root, who alone
    // gives objects to others, pins what it gives.
    void account(Object& object);
    // The object and its names are those of an earlier daemon. A ttl since the last use begins again, since opens are
    // not recorded.
    void restored(Object& object);
    // Objects that a session leaves behind, as a list: they are reclaimed as expired ones are.
    void orphan(SessionId creator, Object* first);
    Object*& orphans_of(SessionId creator) { return orphans_.at(creator); }

    // ---- the timer's ----
    // Called when there is work at an earlier time than before. Any thread with the store lock.
    void set_wake(std::function<void(int64_t due_ns)> wake) { wake_ = std::move(wake); }
    // When expire() has work. Nothing: never.
    std::optional<int64_t> next_due() const;
    // Removes what is due, but looks at `most` names only. True: more is due. The caller waits until next_due() then.
    bool expire(size_t most);

    size_t queued() const { return queue_.size(); }

private:
    bool is_admin(const Credentials& who) const { return who.is_root() || who.uid == owner_; }
    Lifetime& of(Object& object);
    // Frees the record if it has nothing to say.
    void drop_if_empty(Object& object);
    Status check_budget(DeviceIndex device, uid_t uid, uint64_t bytes) const;
    void count(Lifetime& lifetime, uint64_t bytes);
    void uncount(Lifetime& lifetime);
    void end_pin(Object& object);

    // A binary heap by due_ns. An object that is used stays where it is until then, so that a use costs nothing here.
    void queue(Lifetime& lifetime);
    void queue_at(Lifetime& lifetime, int64_t due_ns);
    void unqueue(Lifetime& lifetime);
    void rise(size_t at);
    void sink(size_t at);
    void set(size_t at, Lifetime* lifetime) {
        queue_[at] = lifetime;
        lifetime->position = static_cast<uint32_t>(at);
    }
    void wake();
    bool is_due(Lifetime& lifetime, int64_t now_ns);
    // Returns the number of names that it has removed, at most `most`.
    size_t remove(Object& object, size_t most);

    Store& store_;
    const uid_t owner_;
    static constexpr unsigned kNoLimit = UINT32_MAX;
    std::atomic<unsigned> pin_share_ = kNoLimit;               // in percent
    std::vector<std::unordered_map<uid_t, uint64_t>> pinned_;  // by device
    std::vector<Lifetime*> queue_;
    std::unordered_map<SessionId, Object*> orphans_;  // by their creator: the first of a list
    std::function<void(int64_t)> wake_;
    std::optional<int64_t> told_;  // to wake_, or by next_due() after expire()
};

}  // namespace gshm::core
