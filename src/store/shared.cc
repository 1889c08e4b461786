// Reading by several threads at a time. They change nothing but their own sessions' leases, the objects' atomic counts of
// them, and the ledger. Whatever needs more is left to the calls that have the store to themselves.
#include "store/store.h"

#include "base/name.h"

namespace gshm::core {

bool Store::is_settled(const Object& object) {
    if (object.extent == nullptr) return true;
    if (object.extent->shown_bytes != object.extent->size_bytes) return false;
    return object.state == ObjectState::sealed || object.extent->memory->file() == nullptr;
}

Object* Store::lease_shared(SessionId id, Session& session, Object* object, bool sealed_only) {
    if (!check_may_open(session.who, *object, Access::read)) return nullptr;
    if (!outlives_lease(*object)) return nullptr;
    if ((sealed_only && object->state != ObjectState::sealed) || !is_settled(*object)) return nullptr;
    auto [found, is_new] = session.leases.try_emplace(object->id);
    Lease& lease = found->second;
    if (is_new && ledger_ != nullptr) {
        Lease first{.object = object, .count = 1};
        lease.slot = ledger_->try_add(LedgerKind::lease, id, object->id, first.ledger_value());
        if (lease.slot == Ledger::kNone) {
            session.leases.erase(found);
            return nullptr;
        }
    }
    lease.object = object;
    ++lease.count;
    if (!is_new && lease.slot != Ledger::kNone && ledger_ != nullptr) ledger_->set(lease.slot, lease.ledger_value());
    object->leases.fetch_add(1, std::memory_order_relaxed);
    object->session_leases.fetch_add(1, std::memory_order_relaxed);
    return object;
}

Object* Store::open_shared(SessionId id, std::string_view name, bool sealed_only) {
    Session& session = at(id);
    auto object = find_object(session, name);
    return object ? lease_shared(id, session, *object, sealed_only) : nullptr;
}

Object* Store::open_id_shared(SessionId id, NodeId node, bool sealed_only) {
    Session& session = at(id);
    Object* object = this->object(node);
    if (object == nullptr || !tree_.check_way_to(session.who, *object)) return nullptr;
    return lease_shared(id, session, object, sealed_only);
}

bool Store::outlives_lease(const Object& object) {
    return object.links > 0 && object.retired == nullptr;
}

bool Store::can_release_shared(SessionId id, NodeId node) const {
    const Session& session = at(id);
    auto found = session.leases.find(node);
    return found == session.leases.end() || outlives_lease(*found->second.object);
}

void Store::release_shared(SessionId id, NodeId node, Access access) {
    Session& session = at(id);
    auto found = session.leases.find(node);
    if (found == session.leases.end()) return;  // it was reclaimed already
    Lease& lease = found->second;
    Object* object = lease.object;
    if ((access == Access::write ? lease.writers : lease.count - lease.writers) == 0) return;
    if (access == Access::write) {
        --lease.writers;
        object->write_leases.fetch_sub(1, std::memory_order_relaxed);
    }
    --lease.count;
    if (lease.count > 0) {
        if (lease.slot != Ledger::kNone && ledger_ != nullptr) ledger_->set(lease.slot, lease.ledger_value());
    } else {
        erase_note(lease.slot);
        session.leases.erase(found);
    }
    object->leases.fetch_sub(1, std::memory_order_relaxed);
    object->session_leases.fetch_sub(1, std::memory_order_relaxed);
}

const Node* Store::stat_shared(SessionId id, std::string_view name) const {
    if (!name.empty() && !check_name(name)) return nullptr;
    auto node = tree_.find(at(id).who, name, Tree::Last::keep);
    if (!node) return nullptr;
    auto* object = as_object(*node);
    return object == nullptr || is_settled(*object) ? *node : nullptr;
}

bool Store::may_map_shared(SessionId id, const Object& object) const {
    const StoredExtent* extent = object.extent;
    if (extent == nullptr || extent->pool == nullptr || !extent->closed) return true;
    const Credentials& who = at(id).who;
    return who.is_root() || who.uid == extent->pool->key.uid;
}

}  // namespace gshm::core
