// Sessions and their leases.
#include <cassert>

#include "base/limits.h"
#include "store/evictables.h"
#include "store/lifetimes.h"

namespace gshm::core {

SessionId Store::begin_session(const Credentials& who) {
    SessionId id = session_ids_.take();
    Session& session = sessions_[id];
    session.who = who;
    session.lease_charge = {budgets_.user(who.uid), Resource::leases};
    return id;
}

Status Store::keep_session(SessionId id, uint64_t process_started, const SessionSecret& secret) {
    if (ledger_ == nullptr) return {};
    TRY(reserve_note());
    Session& session = at(id);
    session.secret = secret;
    session.process_started = process_started;
    session.slot = ledger_->add(LedgerKind::session, id, static_cast<uint64_t>(session.who.pid), process_started,
                                {secret.words[0], secret.words[1], session.who.uid, session.who.gid});
    return {};
}

std::optional<SessionId> Store::resume_session(const SessionSecret& secret, const Credentials& who) {
    for (auto& [id, session] : sessions_) {
        if (!session.detached || session.secret != secret) continue;
        if (session.who.uid != who.uid || session.who.pid != who.pid) return std::nullopt;
        session.detached = false;
        session.who = who;
        return id;
    }
    return std::nullopt;
}

void Store::reconcile(SessionId id, const std::unordered_map<NodeId, Claim>& claims) {
    Session& session = at(id);
    std::vector<NodeId> nodes;
    for (const auto& [node, lease] : session.leases) nodes.push_back(node);
    for (NodeId node : nodes) {
        auto found = claims.find(node);
        Claim claim = found == claims.end() ? Claim{} : found->second;
        for (Access access : {Access::write, Access::read}) {
            for (;;) {
                auto lease = session.leases.find(node);
                if (lease == session.leases.end()) break;
                uint32_t held =
                    access == Access::write ? lease->second.writers : lease->second.count - lease->second.writers;
                if (held <= (access == Access::write ? claim.writers : claim.readers)) break;
                drop_lease(id, session, lease->second, access);
            }
        }
    }
}

void Store::end_session(SessionId id) {
    Session& session = at(id);
    // Names are removed first, so that objects held only by this session are freed with its leases.
    for (size_t left = limits::kReclaimedAtOnce; session.unsealed != nullptr && left > 0; --left) {
        Object* object = session.unsealed;
        forget_creator(object);
        object->reclaim = ReclaimReason::client_died;
        if (object->links == 0) continue;
        tree_.detach(object);
        unlinked(object);
    }
    for (auto& [node, lease] : session.leases) {
        lease.object->leases -= lease.count;
        lease.object->session_leases -= lease.count;
        lease.object->write_leases -= lease.writers;
        counts_.add_leases(id, lease.object->device, int64_t{lease.writers} - lease.count, -int64_t{lease.writers});
        erase_note(lease.slot);
        note_use(*lease.object);
        evictables_->released(*lease.object);
        free_if_unused(lease.object);
    }
    for (ExtentId extent : session.writes) extents_.remove_writer(extent, id);
    erase_note(session.slot);
    lifetimes_->orphan(id, session.unsealed);
    sessions_.erase(id);
}

bool Store::charge_lease(Session& session) {
    constexpr uint64_t kStep = 32;
    const uint64_t needed = session.leases.size() + 1;
    if (needed <= session.lease_charge.amount()) return true;
    return session.lease_charge.take(needed - session.lease_charge.amount() + kStep - 1);
}

void Store::uncharge_leases(Session& session) {
    constexpr uint64_t kSpare = 128;
    const uint64_t needed = session.leases.size();
    if (session.lease_charge.amount() > needed + 2 * kSpare) {
        session.lease_charge.give(session.lease_charge.amount() - needed - kSpare);
    }
}

Status Store::reserve_lease(Session& session) {
    if (!charge_lease(session)) return std::unexpected(session.lease_charge.refusal());
    return reserve_note();
}

Object* Store::add_lease(SessionId id, Session& session, Object* object, Access access) {
    Lease& lease = session.leases[object->id];
    lease.object = object;
    ++lease.count;
    ++object->leases;
    ++object->session_leases;
    note_use(*object);
    if (access == Access::write) {
        ++lease.writers;
        ++object->write_leases;
        ++object->write_opens;
    }
    counts_.add_leases(id, object->device, access == Access::write ? 0 : 1, access == Access::write ? 1 : 0);
    if (lease.slot != Ledger::kNone && ledger_ != nullptr) ledger_->set(lease.slot, lease.ledger_value());
    else if (ledger_ != nullptr) lease.slot = ledger_->add(LedgerKind::lease, id, object->id, lease.ledger_value());
    return object;
}

void Store::drop_lease(SessionId id, Session& session, Lease& lease, Access access) {
    Object* object = lease.object;
    counts_.add_leases(id, object->device, access == Access::write ? 0 : -1, access == Access::write ? -1 : 0);
    if (access == Access::write) {
        --lease.writers;
        --object->write_leases;
    }
    --object->leases;
    --object->session_leases;
    --lease.count;
    if (lease.count == 0) {
        erase_note(lease.slot);
        session.leases.erase(object->id);
        uncharge_leases(session);
    } else if (lease.slot != Ledger::kNone && ledger_ != nullptr) {
        ledger_->set(lease.slot, lease.ledger_value());
    }
    note_use(*object);
    if (object->leases == 0) evictables_->released(*object);
    free_if_unused(object);
}

Status Store::release(SessionId id, NodeId node, Access access) {
    Session& session = at(id);
    auto lease = session.leases.find(node);
    if (lease == session.leases.end()) return fail(ENOENT, "no lease on object {}", node);
    uint32_t readers = lease->second.count - lease->second.writers;
    if ((access == Access::write ? lease->second.writers : readers) == 0) {
        return fail(ENOENT, "no lease of that kind on object {}", node);
    }
    drop_lease(id, session, lease->second, access);
    return {};
}

Result<Object*> Store::leased(SessionId id, NodeId node, Access access) const {
    const Session& session = at(id);
    auto lease = session.leases.find(node);
    if (lease == session.leases.end()) return fail(ENOENT, "no lease on object {}", node);
    Object* object = lease->second.object;
    if (access == Access::write) {
        if (lease->second.writers == 0) return fail(EACCES, "object {} is not open for writing", node);
        if (object->state == ObjectState::sealed) return fail(EPERM, "the object is sealed and cannot be written");
    }
    return object;
}

void Store::move_leases(const Object& object, DeviceIndex from, DeviceIndex to) {
    if (from == to || object.session_leases == 0) return;
    for (const auto& [id, session] : sessions_) {
        auto found = session.leases.find(object.id);
        if (found == session.leases.end()) continue;
        const int64_t writers = found->second.writers;
        const int64_t readers = int64_t{found->second.count} - writers;
        counts_.add_leases(id, from, -readers, -writers);
        counts_.add_leases(id, to, readers, writers);
    }
}

namespace {

// Calls `look` for the entries from that bucket on, until there were `most`.
void walk(const auto& map, size_t most, uint64_t* bucket, auto&& look) {
    size_t seen = 0;
    for (; *bucket < map.bucket_count(); ++*bucket) {
        if (seen >= most) return;
        // Empty buckets take time as well.
        ++seen;
        for (auto entry = map.begin(*bucket); entry != map.end(*bucket); ++entry, ++seen) look(*entry);
    }
    *bucket = UINT64_MAX;
}

}  // namespace

std::vector<std::pair<SessionId, pid_t>> Store::sessions(size_t most, uint64_t* bucket) const {
    std::vector<std::pair<SessionId, pid_t>> found;
    walk(sessions_, most, bucket, [&](const auto& entry) { found.emplace_back(entry.first, entry.second.who.pid); });
    return found;
}

void Store::add_held_bytes(SessionId session, size_t most, uint64_t* bucket, std::vector<uint64_t>* bytes) const {
    walk(at(session).leases, most, bucket, [&](const auto& entry) {
        const Object& object = *entry.second.object;
        if (object.extent != nullptr) (*bytes)[object.device] += object.size_bytes;
    });
}

}  // namespace gshm::core
