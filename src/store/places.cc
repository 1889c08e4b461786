// The place of an object's bytes: access to it, and its release. Moves are in moves.cc.
#include <algorithm>
#include <utility>

#include "store/acl.h"
#include "store/evictables.h"
#include "store/gate.h"
#include "store/store.h"

namespace gshm::core {

void Store::place(Object* object, const Place& where, uint64_t size_bytes) {
    object->extent = where.extent;
    object->offset = where.offset;
    object->size_bytes = size_bytes;
    if (object->gate) object->gate->size_bytes.store(size_bytes, std::memory_order_relaxed);
    nodes_.changed(object);
    accounts_.update(*object);
    if (where.extent == nullptr) return;
    extents_.attach(where);
    evictables_->add(*object);
    if (where.extent->shown_bytes != where.extent->size_bytes) extents_.show(where.extent);
    if (auto* file = where.extent->memory->file()) {
        if (auto status = file->status()) {
            object->file_modified_ns = status->modified_ns;
            object->file_accessed_ns = status->accessed_ns;
        }
    }
}

std::string Store::key_reach(uint32_t mode, const AclPointer& acl, std::string reach) {
    // If only the owner may open the object, neither its ACL nor the directories exclude a further user.
    if ((mode & 077) == 0) return {};
    return acl ? fmt::format("acl:{};{}", acl->digest(), reach) : reach;
}

bool Store::fits_slab(const Object& object, const SlabKey& key) {
    if (object.uid != key.uid || object.gid != key.gid || object.mode != key.mode) return false;
    auto reached_alike = [&](const Link& link) {
        return link.parent == nullptr || (object.mode & 077) == 0 ||
               key_reach(object.mode, object.acl, Tree::reach(*link.parent)) == key.reach;
    };
    return reached_alike(object.first_link) && std::all_of(object.further_links.begin(), object.further_links.end(),
                                                           [&](const auto& link) { return reached_alike(*link); });
}

void Store::rights_changed(Node& node) {
    std::vector<Node*> pending{&node};
    while (!pending.empty()) {
        Node* at = pending.back();
        pending.pop_back();
        if (auto* directory = as_directory(at)) {
            uint64_t end = 0;
            for (const Link* link : directory->order.after(0, SIZE_MAX, &end)) pending.push_back(link->node);
        } else if (auto* object = as_object(at); object != nullptr && object->extent != nullptr &&
                                                 object->extent->slab_group != nullptr && !object->extent->unmapped &&
                                                 !fits_slab(*object, object->extent->slab_group->key)) {
            extents_.close_slab(object->extent);
        }
    }
}

Status Store::begin_mapping(SessionId id, Object* object, Access access) {
    StoredExtent* extent = object->extent;
    Session& session = at(id);
    if (extent == nullptr || extent->slab_group == nullptr) return {};
    if (extent->unmapped) return fail(EAGAIN, "the object has no memory of its own yet");
    if (extent->closed && !session.who.is_root() && session.who.uid != extent->slab_group->key.uid) {
        return fail(EACCES,
                    "the object shares its memory with objects that you may not open: rights were changed after they "
                    "were made. Its owner can copy it (`gshm get`, `gshm put`), or you copy from it without mapping "
                    "it");
    }
    if (access == Access::read || !extent->protects) return {};
    if (!session.writes.contains(extent->id)) {
        if (extent->is_read_only()) {
            return fail(EBUSY,
                        "the object shares its memory with sealed objects and is held by another process. Copy to it "
                        "without mapping it, or make objects that several processes write to with GSHM_DEDICATED");
        }
        add_writer(id, session, extent);
    }
    // Noted for a later daemon.
    Lease& lease = session.leases.at(object->id);
    if (!std::exchange(lease.maps, true) && lease.slot != Ledger::kNone && ledger_ != nullptr) {
        ledger_->set(lease.slot, lease.ledger_value());
    }
    return {};
}

void Store::add_writer(SessionId id, Session& session, StoredExtent* extent) {
    constexpr size_t kFew = 64;
    if (session.writes.size() > kFew + 2 * extents_.count()) {
        std::erase_if(session.writes, [&](ExtentId slab) { return extents_.find(slab) == nullptr; });
    }
    session.writes.insert(extent->id);
    extents_.add_writer(extent, id);
}

bool Store::can_leave_slab(SessionId session, const Object& object) const {
    auto lease = at(session).leases.find(object.id);
    return object.extent != nullptr && object.extent->slab_group != nullptr && !object.retired &&
           lease != at(session).leases.end() && lease->second.count == 1 && object.leases == 1;
}

void Store::count_sealed(Object* object) {
    auto count = [&](StoredExtent* extent) {
        if (extent != nullptr && extent->slab_group != nullptr) extents_.note_sealed(extent);
    };
    count(object->extent);
    if (!object->retired) return;
    for (const auto& retired : *object->retired) count(retired.place.extent);
}

bool Store::leaves_closed_slab(SessionId session, const Object& object) const {
    const StoredExtent* extent = object.extent;
    if (extent == nullptr || extent->slab_group == nullptr || extent->unmapped || !extent->closed) return false;
    const Credentials& who = at(session).who;
    if (who.is_root() || who.uid == extent->slab_group->key.uid) return false;
    return object.state == ObjectState::sealed || can_leave_slab(session, object);
}

// The object has no name.
void Store::free_memory(Object* object) {
    if (const uint64_t file = std::exchange(object->stored, 0); file != 0) {
        extents_.reclaimer().remove_stored(file);
        object->size_bytes = 0;
        object->evicted_from = 0;
        accounts_.update(*object);
        nodes_.changed(object);
    }
    if (object->extent == nullptr) return;
    // The gate drops its reference before the memory goes to the reclaimer, so that the memory is freed there and not
    // here. No thread works on the bytes any more, but a thread that is about to drop the gate may still have it.
    drop_backing(object->id);
    if (object->gate) object->gate->memory.reset();
    object->gate.reset();
    extents_.detach({object->extent, object->offset}, object->size_bytes, object->state == ObjectState::sealed,
                    object->uid);
    counts_.reclaimed(object->device, object->reclaim, object->size_bytes);
    object->extent = nullptr;
    accounts_.update(*object);
    nodes_.changed(object);
}

void Store::drop_backing(NodeId node) {
    auto found = backing_.find(node);
    if (found == backing_.end()) return;
    // The ledger marks the file as closing first, so that a later daemon does not use an id that may be closed. The
    // entry is removed last, so that a later daemon closes the file if this one is killed before.
    const Backing backing = found->second;
    backing_.erase(found);
    if (backing.slot != Ledger::kNone && ledger_ != nullptr) ledger_->set(backing.slot, kClosingBacking);
    if (!close_backing_) return former_backing_.push_back(backing);  // the mount is not resumed yet
    close_backing_(backing.id);
    erase_note(backing.slot);
}

void Store::free_retired(Object* object) {
    if (!object->retired) return;
    for (const auto& [place, size_bytes] : *object->retired) {
        counts_.reclaimed(place.extent->device, ReclaimReason::unlinked, size_bytes);
        extents_.detach(place, size_bytes, object->state == ObjectState::sealed, object->uid);
    }
    object->retired.reset();
    accounts_.update(*object);
    nodes_.changed(object);
}

}  // namespace gshm::core
