#include "store/restore.h"

#include <algorithm>
#include <sys/stat.h>

#include "base/log.h"
#include "store/account_limits.h"
#include "store/acl.h"
#include "store/evictables.h"
#include "store/lifetimes.h"

namespace gshm::core {

Status Restorer::add(SavedExtent saved) {
    Extents& extents = store_.extents_;
    if (saved.id == 0 && mode_ == Mode::salvage) saved.id = extents.ids_.take();
    TRY(check(saved));
    if (extents_.contains(saved.key) || extents.find(saved.id) != nullptr) {
        return fail(EUCLEAN, "extent {} is there twice", saved.key);
    }
    auto extent = std::make_unique<StoredExtent>();
    auto* added = extent.get();
    added->id = saved.id;
    added->key = saved.key;
    added->device = saved.device;
    added->size_bytes = saved.memory->size();
    added->shown_bytes = saved.shown_bytes;
    added->compressible = saved.compressible;
    added->memory = std::move(saved.memory);
    added->kept = true;
    added->handle_given = saved.handle_given;
    added->reached_by_others = true;  // clients of an earlier daemon may have descriptors
    if (mode_ == Mode::strict) added->row_sum = saved.row_sum;
    if (saved.slab) {
        auto& group = extents.slab_groups_[*saved.slab];
        group.key = *saved.slab;
        group.next_size_bytes = added->size_bytes;
        ++group.slabs;
        added->slab_group = &group;
        added->unmapped = saved.slab->is_unmapped();
        added->closed = saved.closed;
        added->protects = store_.devices_[added->device].read_only_exports;
        added->slab.emplace();  // without free ranges until these are zeroed
        Extents::enlist(added, true);
        taken_[added];
    }
    extents_.emplace(added->key, added);
    extents.ids_.skip_to(added->id + 1);
    extents.keys_.skip_to(added->key + 1);
    extents.extents_.emplace(added->id, std::move(extent));
    return {};
}

Status Restorer::add(SavedNode saved) {
    TRY(check(saved));
    AclEntries acl;
    AclEntries default_acl;
    TRY(read_acls(saved, acl, default_acl));
    Nodes& nodes = store_.nodes_;
    auto twice = [&] { return fail(EUCLEAN, "node {} is there twice", saved.id); };
    Node* node = nullptr;
    switch (saved.kind) {
        case NodeKind::directory: {
            auto* directory =
                saved.id == store_.tree_.root().id ? &store_.tree_.root() : nodes.restore<Directory>(saved.id);
            if (directory == nullptr) return twice();
            directories_.push_back(directory);
            directory->device = saved.device;
            directory->implicit = saved.implicit;
            directory->default_acl = nodes.acls().intern(std::move(default_acl));
            if (auto limited = store_.limits_->restore(*directory, saved.limits); !limited) {
                TRY(note_damage(limited.error()));
            }
            node = directory;
            break;
        }
        case NodeKind::symlink: node = nodes.restore<Symlink>(saved.id, saved.target); break;
        case NodeKind::special: node = nodes.restore<Special>(saved.id, saved.type, saved.number); break;
        case NodeKind::object: {
            auto* object = nodes.restore<Object>(saved.id);
            if (object == nullptr) return twice();
            object->state = saved.state;
            object->flags = saved.flags;
            object->device = saved.device.value_or(0);
            object->size_bytes = saved.size_bytes;
            object->offset = saved.offset;
            if (saved.evicted_from) object->evicted_from = *saved.evicted_from + 1;
            object->stored = saved.stored;
            object->file_modified_ns = saved.file_modified_ns;
            object->file_accessed_ns = saved.file_accessed_ns;
            // Opens are not recorded.
            object->used_ns = std::max({saved.created_ns, saved.accessed_ns, saved.modified_ns, saved.changed_ns});
            auto take = [&](uint64_t key, uint64_t offset, uint64_t bytes) -> StoredExtent* {
                auto found = extents_.find(key);
                if (found == extents_.end()) return nullptr;
                store_.extents_.attach({found->second, offset});
                if (found->second->slab_group == nullptr) return found->second;
                taken_[found->second].push_back({offset, Slab::rounded(bytes), object});
                if (object->state == ObjectState::sealed) store_.extents_.note_sealed(found->second);
                return found->second;
            };
            if (saved.extent != 0) object->extent = take(saved.extent, saved.offset, saved.size_bytes);
            if (saved.extent != 0 && object->extent == nullptr) lost_.push_back(object);
            for (const auto& retired : saved.retired) {
                StoredExtent* extent = take(retired.extent, retired.offset, retired.size_bytes);
                if (extent == nullptr) continue;
                if (!object->retired) object->retired = std::make_unique<std::vector<Object::Retired>>();
                object->retired->push_back({{extent, retired.offset}, retired.size_bytes});
            }
            if (saved.creator != 0) creators_.emplace_back(object, saved.creator);
            if (saved.ttl_ns != 0) {
                object->lifetime.reset(new Lifetime(*object));
                object->lifetime->ttl_ns = saved.ttl_ns;
                object->lifetime->from_ns = saved.ttl_from_ns;
            }
            if (!saved.counted_in.empty()) counted_in_.emplace_back(object, std::move(saved.counted_in));
            node = object;
            break;
        }
    }
    if (node == nullptr) return twice();
    node->first_link.name = saved.last_name;
    node->mode = saved.mode;
    node->acl = nodes.acls().intern(std::move(acl));
    node->uid = saved.uid;
    node->gid = saved.gid;
    node->created_ns = saved.created_ns;
    node->accessed_ns = saved.accessed_ns;
    node->modified_ns = saved.modified_ns;
    node->changed_ns = saved.changed_ns;
    if (mode_ == Mode::strict) node->row_sum = saved.row_sum;
    if (!saved.attributes.empty()) {
        node->attributes = std::make_unique<Attributes>(saved.attributes);
        node->attribute_bytes = static_cast<uint32_t>(bytes_of(saved.attributes));
    }
    for (auto& link : saved.links) links_.push_back({node, std::move(link)});
    return {};
}

// In the order of the cookies, which is that of listings.
Status Restorer::link_all() {
    struct Place {
        NodeId parent;
        uint64_t cookie;
        size_t index;
        auto operator<=>(const Place&) const = default;
    };
    std::vector<Place> places;
    places.reserve(links_.size());
    for (const auto& pending : links_) places.push_back({pending.link.parent, pending.link.cookie, places.size()});
    std::ranges::sort(places);
    for (const Place& place : places) {
        const auto& [node, saved] = links_[place.index];
        Node* found = store_.nodes_.find(saved.parent);
        auto* parent = found == nullptr ? nullptr : as_directory(found);
        if (parent == nullptr || parent->children.find(saved.name) != nullptr ||
            saved.cookie < parent->order.next_cookie()) {
            TRY(note_damage({EUCLEAN, fmt::format("the name \"{}\" of node {} has no place", saved.name, node->id)}));
            continue;
        }
        Link* link = node->new_link();
        link->name = saved.name;
        link->parent = parent;
        link->cookie = saved.cookie;
        parent->order.restore(link);
        parent->children.insert(link);
        if (node->kind == NodeKind::directory) ++parent->subdirectories;
        ++node->links;
    }
    store_.tree_.root().links = 1;
    return {};
}

// Ranges of slabs without an object may have any bytes. They are zeroed before they are used.
void Restorer::zero_rest() {
    for (auto& [extent, ranges] : taken_) {
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
        uint64_t at = 0;
        auto free_until = [&, extent = extent](uint64_t end) {
            if (end <= at) return;
            store_.extents_.reclaimer_.zero(extent->device, extent->id, extent->memory, at, end - at,
                                            extent->slab_group->key.uid);
        };
        for (const Range& range : ranges) {
            free_until(range.offset);
            at = std::max(at, range.offset + range.bytes);
        }
        free_until(extent->size_bytes);
    }
}

Status Restorer::restore_sessions(const std::vector<Ledger::Slot>& slots) {
    for (Ledger::Slot slot : slots) {
        const LedgerEntry& entry = store_.ledger_->entry(slot);
        if (entry.kind() != LedgerKind::session) continue;
        if (store_.sessions_.contains(entry.id())) {
            TRY(note_damage({EUCLEAN, fmt::format("session {} is in the ledger twice", entry.id())}));
            continue;
        }
        auto& session = store_.sessions_[entry.id()];
        session.who = {
            static_cast<uid_t>(entry.more[2]), static_cast<gid_t>(entry.more[3]), static_cast<pid_t>(entry.node), {}};
        session.secret = {{entry.more[0], entry.more[1]}};
        session.process_started = entry.value.load(std::memory_order_relaxed);
        session.slot = slot;
        session.detached = true;
        session.lease_charge = {store_.budgets_.user(session.who.uid), Resource::leases};
        store_.session_ids_.skip_to(entry.id() + 1);
    }
    return {};
}

void Restorer::restore_creators() {
    for (auto [object, creator] : creators_) {
        auto session = store_.sessions_.find(creator);
        if (session == store_.sessions_.end()) {
            // Its session had ended without sealing it. In a salvage the ledger entry of the session may be lost.
            if (mode_ == Mode::strict) store_.tree_.detach(object);
            continue;
        }
        object->creator = creator;
        object->next_unsealed = session->second.unsealed;
        if (object->next_unsealed != nullptr) object->next_unsealed->previous_unsealed = object;
        session->second.unsealed = object;
    }
}

Object* Restorer::object_of(const LedgerEntry& entry) const {
    Node* node = store_.nodes_.find(entry.node);
    return node == nullptr ? nullptr : as_object(node);
}

Status Restorer::restore_leases(const std::vector<Ledger::Slot>& slots, bool with_mount) {
    for (Ledger::Slot slot : slots) {
        const LedgerKind kind = store_.ledger_->entry(slot).kind();
        if (kind == LedgerKind::session || kind == LedgerKind::extent || kind == LedgerKind::numbers) continue;
        bool twice = false;
        if (restore_lease(slot, with_mount, &twice)) continue;
        if (twice) TRY(note_damage({EUCLEAN, fmt::format("entry {} of the ledger is there twice", slot)}));
        // A killed daemon leaves leases in the ledger whose objects are not in the catalog yet, or no longer.
        store_.ledger_->remove(slot);
    }
    // Backing files are for open files. Older daemons kept others.
    std::erase_if(store_.backing_, [&](const auto& entry) {
        if (store_.object(entry.first)->open_files > 0) return false;
        store_.former_backing_.push_back(entry.second);
        return true;
    });
    return {};
}

bool Restorer::restore_lease(Ledger::Slot slot, bool with_mount, bool* ret_twice) {
    const LedgerEntry& entry = store_.ledger_->entry(slot);
    const uint64_t value = entry.value.load(std::memory_order_relaxed);
    Object* object = object_of(entry);
    if (entry.kind() == LedgerKind::backing && with_mount) return restore_backing(slot, object);
    if (object == nullptr) return false;
    if (entry.kind() == LedgerKind::lease) {
        auto session = store_.sessions_.find(entry.id());
        if (session == store_.sessions_.end()) return false;
        Store::Lease noted;
        noted.take_ledger_value(value);
        if (noted.count == 0) return false;
        noted.object = object;
        noted.slot = slot;
        auto [lease, added] = session->second.leases.try_emplace(object->id);
        *ret_twice = !added;
        if (!added) return false;
        session->second.lease_charge.add(1);
        lease->second = noted;
        // Slabs of objects that the session has closed are unknown: it gets another slab next time.
        StoredExtent* extent = object->extent;
        const bool slab = extent != nullptr && extent->slab_group != nullptr && extent->protects;
        if (lease->second.maps && slab && !session->second.writes.contains(extent->id)) {
            store_.add_writer(entry.id(), session->second, extent);
        }
        object->leases += lease->second.count;
        object->session_leases += lease->second.count;
        object->write_leases += lease->second.writers;
        const int64_t writers = lease->second.writers;
        store_.counts_.add_leases(entry.id(), object->device, int64_t{lease->second.count} - writers, writers);
        return true;
    }
    if (entry.kind() != LedgerKind::file || !with_mount) return false;
    Access access = value != 0 ? Access::write : Access::read;
    Credentials who{
        static_cast<uid_t>(entry.more[1]), static_cast<gid_t>(entry.more[2]), static_cast<pid_t>(entry.more[3]), {}};
    Budgets::Charge charge(store_.budgets_.user(who.uid), Resource::leases);
    charge.add(1);
    Store::OpenFile file{object, access, who, entry.more[0], slot, std::move(charge)};
    *ret_twice = !store_.files_.emplace(entry.id(), std::move(file)).second;
    if (*ret_twice) return false;
    store_.resumed_files_.emplace(entry.more[0], entry.id());
    store_.file_ids_.skip_to(entry.id() + 1);
    ++object->open_files;
    store_.pin(object, access);
    return true;
}

bool Restorer::restore_backing(Ledger::Slot slot, Object* object) {
    const LedgerEntry& entry = store_.ledger_->entry(slot);
    const Store::Backing backing{static_cast<int32_t>(entry.id()), slot};
    // The kernel gets a backing file before the catalog has its extent. After a kill it may have a file of an extent
    // that was not recorded.
    const bool is_current = object != nullptr && object->extent != nullptr &&
                            object->extent->key == entry.value.load(std::memory_order_relaxed);
    // A second backing file of an object is closed as well.
    const bool used = is_current && store_.backing_.try_emplace(object->id, backing).second;
    if (!used) store_.former_backing_.push_back(backing);
    return true;
}

// Before objects lose their names, or are freed.
void Restorer::restore_trees() {
    if (!store_.limits_->has_trees()) return;
    for (auto& [object, directories] : counted_in_) store_.limits_->restore_trees(*object, directories);
    store_.limits_->names_changed(store_.tree_.root());
}

void Restorer::free_unused() {
    for (Node* node : store_.nodes_.all()) {
        if (auto* object = as_object(node)) {
            store_.lifetimes_->restored(*object);
            store_.accounts_.update(*object);
            store_.refresh(object);
            store_.evictables_->add(*object);
            if (object->extent != nullptr) store_.extents_.count(*object->extent, object->uid);
            if (object->links == 0) store_.unnamed_.insert(object->id);
        }
        store_.nodes_.count(*node);
        store_.free_if_unused(node);
    }
    for (StoredExtent* extent : store_.extents_.all()) {
        if (extent->objects == 0) store_.extents_.erase(extent);
    }
}

Status Restorer::link_and_check() {
    linked_ = true;
    TRY(link_all());
    TRY(check_slabs());
    TRY(check_tree());
    if (lost_.empty()) return {};
    return fail(EUCLEAN, "\"{}\" has no memory", Tree::path_of(*lost_.front()));
}

Result<Restorer::Sessions> Restorer::finish(const Refer& refer, const Lives& lives) {
    if (store_.ledger_ != nullptr && mode_ == Mode::strict) TRY(store_.ledger_->check());
    if (mode_ == Mode::salvage) skip_numbers();
    if (!linked_) {
        TRY(link_all());
        TRY(check_slabs());
        if (mode_ == Mode::salvage) name_lost_nodes();
        TRY(check_tree());
    }
    if (mode_ == Mode::salvage) name_lost_memory();
    restore_trees();
    const auto slots = store_.ledger_ != nullptr ? store_.ledger_->used() : std::vector<Ledger::Slot>();
    TRY(restore_sessions(slots));
    restore_creators();
    for (Object* object : lost_) {
        log_error("\"{}\" is lost: nobody has kept its memory", Tree::path_of(*object));
        object->size_bytes = 0;
        store_.tree_.detach(object);
    }
    TRY(restore_leases(slots, refer != nullptr));
    if (refer) {
        for (Node* node : store_.nodes_.all()) refer(*node);
    }
    zero_rest();  // before free_unused(), which has its ranges zeroed itself
    free_unused();
    Sessions alive;
    std::vector<SessionId> dead;
    for (const auto& [id, session] : store_.sessions_) {
        Process process{session.who.pid, session.process_started};
        if (lives(process)) alive.emplace_back(id, process);
        else dead.push_back(id);
    }
    for (SessionId id : dead) store_.end_session(id);
    store_.limits_->restored();
    if (mode_ == Mode::salvage) {
        // The new catalog is empty: everything is recorded.
        for (Node* node : store_.nodes_.all()) store_.nodes_.changed(node);
        for (StoredExtent* extent : store_.extents_.all()) store_.extents_.changed(extent);
    }
    return alive;
}

}  // namespace gshm::core
