#include "store/shared.h"

#include "base/name.h"
#include "store/evictables.h"
#include "store/lifetimes.h"

namespace gshm::core {

bool Store::is_settled(const Object& object) {
    if (object.extent == nullptr) return true;
    if (object.extent->shown_bytes != object.extent->size_bytes) return false;
    return object.state == ObjectState::sealed || object.extent->memory->file() == nullptr;
}

Object* SharedStore::lease(SessionId id, Store::Session& session, Object* object, bool sealed_only) const {
    if (!is_permitted(*object, session.who, kRightRead)) return nullptr;
    if (!Store::outlives_lease(*object) || object->is_evicted()) return nullptr;
    if ((sealed_only && object->state != ObjectState::sealed) || !Store::is_settled(*object)) return nullptr;
    // The caller is told of a refusal under the exclusive lock.
    if (!Store::charge_lease(session)) return nullptr;
    Ledger* ledger = store_.ledger_;
    auto [found, is_new] = session.leases.try_emplace(object->id);
    Store::Lease& lease = found->second;
    if (is_new && ledger != nullptr) {
        Store::Lease first{.object = object, .count = 1};
        lease.slot = ledger->try_add(LedgerKind::lease, id, object->id, first.ledger_value());
        if (lease.slot == Ledger::kNone) {
            session.leases.erase(found);
            return nullptr;
        }
    }
    lease.object = object;
    ++lease.count;
    if (!is_new && lease.slot != Ledger::kNone && ledger != nullptr) ledger->set(lease.slot, lease.ledger_value());
    object->leases.fetch_add(1, std::memory_order_relaxed);
    object->session_leases.fetch_add(1, std::memory_order_relaxed);
    store_.counts_.add_leases(id, object->device, 1, 0);
    store_.note_use(*object);
    return object;
}

Object* SharedStore::open(SessionId id, std::string_view name, bool sealed_only) const {
    Store::Session& session = store_.at(id);
    auto object = store_.find_object(session, name);
    return object ? lease(id, session, *object, sealed_only) : nullptr;
}

Object* SharedStore::open_id(SessionId id, NodeId node, bool sealed_only) const {
    Store::Session& session = store_.at(id);
    Object* object = store_.find_id(session.who, node);
    return object == nullptr ? nullptr : lease(id, session, object, sealed_only);
}

bool Store::outlives_lease(const Object& object) {
    return object.links > 0 && object.retired == nullptr;
}

bool SharedStore::can_release(SessionId id, NodeId node) const {
    const Store::Session& session = store_.at(id);
    auto found = session.leases.find(node);
    if (found == session.leases.end()) return true;
    const Object& object = *found->second.object;
    return Store::outlives_lease(object) && !Lifetimes::awaits_release(object);
}

void SharedStore::release(SessionId id, NodeId node, Access access) const {
    Store::Session& session = store_.at(id);
    auto found = session.leases.find(node);
    if (found == session.leases.end()) return;  // the lease has ended already
    Store::Lease& lease = found->second;
    Object* object = lease.object;
    if ((access == Access::write ? lease.writers : lease.count - lease.writers) == 0) return;
    if (access == Access::write) {
        --lease.writers;
        object->write_leases.fetch_sub(1, std::memory_order_relaxed);
    }
    --lease.count;
    if (lease.count > 0) {
        if (lease.slot != Ledger::kNone && store_.ledger_ != nullptr)
            store_.ledger_->set(lease.slot, lease.ledger_value());
    } else {
        store_.erase_note(lease.slot);
        session.leases.erase(found);
        Store::uncharge_leases(session);
    }
    object->session_leases.fetch_sub(1, std::memory_order_relaxed);
    store_.counts_.add_leases(id, object->device, access == Access::write ? 0 : -1, access == Access::write ? -1 : 0);
    if (object->leases.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    store_.note_use(*object);
    store_.evictables_->released(*object);
}

const Node* SharedStore::stat(SessionId id, std::string_view name) const {
    if (!name.empty() && !check_name(name)) return nullptr;
    auto node = store_.tree_.find(store_.at(id).who, name, Tree::Last::keep);
    if (!node) return nullptr;
    auto* object = as_object(*node);
    return object == nullptr || Store::is_settled(*object) ? *node : nullptr;
}

bool SharedStore::may_map(SessionId id, const Object& object) const {
    const StoredExtent* extent = object.extent;
    if (extent == nullptr || extent->slab_group == nullptr) return true;
    if (extent->unmapped) return false;
    if (!extent->closed) return true;
    const Credentials& who = store_.at(id).who;
    return who.is_root() || who.uid == extent->slab_group->key.uid;
}

}  // namespace gshm::core
