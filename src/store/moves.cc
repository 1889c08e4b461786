// Other memory for an existing object: another extent, another device.
#include "base/limits.h"
#include "base/size.h"
#include "store/evictables.h"
#include "store/gate.h"
#include "store/lifetimes.h"
#include "store/store.h"

namespace gshm::core {
namespace {

std::variant<Place, ExtentNeed> reserved(std::variant<Place, ExtentNeed> placed) {
    if (auto* place = std::get_if<Place>(&placed)) Extents::reserve(*place);
    return placed;
}

}  // namespace

Result<Object*> Store::find_movable(SessionId session, std::string_view name) const {
    const Credentials& who = at(session).who;
    Object* object = TRY(find_object(at(session), name));
    if (who.is_root() || who.uid == object->uid) return object;
    return fail(EPERM, "only its owner and root may move \"{}\" to another device", name);
}

Status Store::check_move(const Object& object, DeviceIndex to, bool keep_holders) const {
    TRY(lifetimes_->check_move(object, to));
    const bool has_files = devices_[object.device].files || devices_[to].files;
    if (has_files && object.open_files > 0) {
        return fail(EBUSY, "the object is open in the mount, and the kernel has its memory");
    }
    const bool imported = object.extent != nullptr && object.extent->handle_given;
    if (!keep_holders && (object.session_leases > 0 || imported)) {
        return fail(EBUSY,
                    "the object is held by a process, which would go on with its old memory (see `gshm holders`)");
    }
    const bool sealed = object.state == ObjectState::sealed;
    if (!sealed && ((object.session_leases > 0 && object.write_leases > 0) || imported)) {
        return fail(EBUSY, "a process may write to the object where it is now (see `gshm holders`)");
    }
    return {};
}

std::variant<Place, ExtentNeed> Store::place_elsewhere(const Object& object, DeviceIndex device) {
    const DeviceInfo& info = devices_[device];
    const bool compressible = (object.flags & kCreateCompressible) != 0 && info.compressible;
    const Link* link = object.any_link();
    SlabKey key{device, object.uid, object.gid, object.mode, compressible, {}};
    if (link != nullptr) key.reach = key_reach(object.mode, object.acl, Tree::reach(*link->parent));
    if (may_share(object, device, object.size_bytes)) {
        key = SlabKey::unmapped(device, compressible);
        return reserved(extents_.place_small(key, object.size_bytes, info, std::nullopt));
    }
    const bool small = object.size_bytes <= limits::kSmallObjectBytes && (object.flags & kCreateDedicated) == 0;
    if (!small || !fits_slab(object, key)) {
        const uint64_t bytes = info.files ? object.size_bytes : round_up(object.size_bytes, info.granularity_bytes);
        return ExtentNeed{device, bytes, bytes, compressible, std::nullopt, false, object.uid};
    }
    return reserved(extents_.place_small(key, object.size_bytes, info, std::nullopt));
}

bool Store::may_share(const Object& object, DeviceIndex device, uint64_t size_bytes) const {
    return (object.flags & kMountFile) != 0 && object.session_leases == 0 && !devices_[device].files &&
           size_bytes > 0 && size_bytes <= limits::kSmallObjectBytes;
}

std::variant<Place, ExtentNeed> Store::place_unmapped(const Object& object, uint64_t size_bytes) {
    const DeviceInfo& info = devices_[object.device];
    const bool compressible = (object.flags & kCreateCompressible) != 0 && info.compressible;
    const SlabKey key = SlabKey::unmapped(object.device, compressible);
    return reserved(extents_.place_small(key, size_bytes, info, std::nullopt));
}

// keep_old: sessions that map the old memory keep it.
void Store::leave_place(Object* object, bool keep_old) {
    if (object->extent == nullptr) return;
    const Place old{object->extent, object->offset};
    if (!keep_old || old.extent->unmapped) {
        return extents_.detach(old, object->size_bytes, object->state == ObjectState::sealed, object->uid);
    }
    if (!object->retired) object->retired = std::make_unique<std::vector<Object::Retired>>();
    object->retired->push_back({old, object->size_bytes});
}

void Store::replace_memory(Object* object, std::shared_ptr<Extent> memory, uint64_t size_bytes, bool keep_old) {
    // The gate drops its reference first, so that the reclaimer has the last one and frees the memory.
    if (object->gate) {
        object->gate->memory = memory;
        object->gate->offset = 0;
        object->gate->in_slab = false;
    }
    leave_place(object, keep_old);
    StoredExtent* extent = nullptr;
    if (memory != nullptr) {
        const bool compressible = (object->flags & kCreateCompressible) != 0 && devices_[object->device].compressible;
        extent = extents_.add({object->device, memory->size(), memory->size(), compressible, std::nullopt}, memory);
    }
    object->flags |= kCreateDedicated;
    place(object, {extent, 0}, size_bytes);
}

void Store::replace_memory(Object* object, const Place& to, uint64_t size_bytes) {
    if (object->gate) {
        object->gate->memory = to.extent->memory;
        object->gate->offset = to.offset;
        object->gate->in_slab = true;
    }
    leave_place(object, object->session_leases > 0);
    place(object, to, size_bytes);
    Extents::unreserve(to);
    if (object->state == ObjectState::sealed) extents_.note_sealed(to.extent);
}

void Store::move(Object* object, DeviceIndex device, const Place& to, bool keep_old, uint32_t evicted_from) {
    drop_backing(object->id);
    if (object->gate) {
        object->gate->memory = to.extent->memory;
        object->gate->offset = to.offset;
        object->gate->in_slab = to.extent->slab_group != nullptr;
        object->gate->device = device;
    }
    // Neither an eviction nor a return changes the object, as its users see it.
    const bool is_eviction = evicted_from != 0 || object->is_evicted();
    if (evicted_from != 0 && object->extent != nullptr) counts_.evicted(object->device, false, object->size_bytes);
    move_leases(*object, object->device, device);
    leave_place(object, keep_old);
    if (const uint64_t file = std::exchange(object->stored, 0); file != 0) extents_.reclaimer().remove_stored(file);
    object->device = device;
    object->evicted_from = evicted_from;
    // The file gets the times of the object, not those of the copy.
    if (auto* file = to.extent->memory->file()) (void)file->set_times(object->accessed_ns, object->modified_ns);
    place(object, to, object->size_bytes);
    if (to.extent->slab_group != nullptr) {
        Extents::unreserve(to);
        if (object->state == ObjectState::sealed) extents_.note_sealed(to.extent);
        rights_changed(*object);
    } else {
        object->flags |= kCreateDedicated;
    }
    if (is_eviction) return;
    object->changed_ns = clock_.now_ns();
    tree_.report(*object);
}

Status Store::check_eviction(const Object& object, uint32_t own) const {
    if (object.session_leases > 0) return fail(EBUSY, "a process has the object open (see `gshm holders`)");
    if (object.open_files > 0) return fail(EBUSY, "the object is open in the mount (see `gshm holders`)");
    if (object.leases > own) return fail(EBUSY, "the object is being read or written");
    if (object.retired) return fail(EBUSY, "a process has former memory of the object (see `gshm holders`)");
    if ((object.flags & kPinned) != 0) return fail(EBUSY, "the object is pinned (see `gshm unpin`)");
    if (object.extent != nullptr && object.extent->handle_given) {
        return fail(EBUSY, "a handle of the object's memory was given out");
    }
    if (object.links == 0) return fail(EBUSY, "the object has no name");
    return {};
}

Status Store::check_return(const Object& object) const {
    // No limit is asked: it counts on that device already.
    if (object.session_leases == 0 || object.state == ObjectState::sealed) return {};
    return fail(EBUSY, "a process has the object open in its tier, and its bytes may change (see `gshm holders`)");
}

void Store::set_stored(Object* object, uint64_t file) {
    drop_backing(object->id);
    const DeviceIndex home = object->home();
    if (object->gate) {
        object->gate->memory.reset();
        object->gate->offset = 0;
        object->gate->in_slab = false;
        object->gate->device = home;
    }
    if (object->extent != nullptr) counts_.evicted(object->device, true, object->size_bytes);
    leave_place(object, false);
    move_leases(*object, object->device, home);
    object->device = home;
    object->evicted_from = home + 1;
    object->stored = file;
    place(object, {}, object->size_bytes);
}

void Store::set_evictable(Object& object, bool evictable) {
    object.flags = evictable ? object.flags | kCreateEvictable : object.flags & ~uint32_t{kCreateEvictable};
    nodes_.changed(&object);
    accounts_.update(object);
    evictables_->add(object);
}

uint32_t Store::inherited_flags(const Directory& parent) {
    for (const Directory* at = &parent; at != nullptr; at = at->parent()) {
        if (!at->attributes) continue;
        auto found = at->attributes->find(kEvictableAttribute);
        if (found != at->attributes->end()) return is_set(found->second) ? uint32_t{kCreateEvictable} : 0;
    }
    return 0;
}

std::vector<Object*> Store::stored_objects() const {
    std::vector<Object*> found;
    for (Node* node : nodes_.all()) {
        auto* object = as_object(node);
        if (object != nullptr && object->stored != 0) found.push_back(object);
    }
    return found;
}

void Store::set_device(Object* object, DeviceIndex device) {
    move_leases(*object, object->device, device);
    object->device = device;
    object->evicted_from = 0;
    if (object->gate) object->gate->device = device;
    object->changed_ns = clock_.now_ns();
    nodes_.changed(object);
    accounts_.update(*object);
}

}  // namespace gshm::core
