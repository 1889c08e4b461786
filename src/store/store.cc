#include "store/store.h"

#include <algorithm>
#include <cassert>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/name.h"
#include "base/size.h"
#include "store/account_limits.h"
#include "store/acl.h"
#include "store/evictables.h"
#include "store/gate.h"
#include "store/lifetimes.h"

namespace gshm::core {
namespace {

std::string called(std::string_view name, const Object& object) {
    return name.empty() ? fmt::format("the object {}", object.id) : fmt::format("\"{}\"", name);
}

}  // namespace

Store::Store(const Clock& clock, Reclaimer& reclaimer, const Credentials& owner, std::vector<DeviceInfo> devices)
    : clock_(clock),
      budgets_(owner.uid),
      devices_(std::move(devices)),
      accounts_(devices_.size()),
      counts_(devices_.size()),
      limits_(std::make_unique<AccountLimits>(*this)),
      evictables_(std::make_unique<Evictables>(*this, devices_.size())),
      extents_(reclaimer, budgets_),
      nodes_(budgets_),
      tree_(clock, owner, nodes_),
      lifetimes_(std::make_unique<Lifetimes>(*this, owner.uid)) {
    accounts_.set_lifetimes(lifetimes_.get());
    accounts_.set_limits(limits_.get());
}

Store::~Store() = default;

Store::Session& Store::at(SessionId session) {
    auto found = sessions_.find(session);
    assert(found != sessions_.end());
    return found->second;
}

const Store::Session& Store::at(SessionId session) const {
    return const_cast<Store*>(this)->at(session);
}

const Credentials& Store::credentials(SessionId session) const {
    return at(session).who;
}

void Store::set_recorder(Recorder* recorder) {
    nodes_.set_recorder(recorder);
    extents_.set_recorder(recorder);
    limits_->set_recorder(recorder);
    nodes_.changed(&tree_.root());
}

Status Store::set_ledger(Ledger* ledger) {
    constexpr size_t kNumbered = 5;
    if (ledger != nullptr) TRY(ledger->reserve(kNumbered));
    ledger_ = ledger;
    nodes_.set_ledger(ledger);
    extents_.set_ledger(ledger);
    session_ids_.use(ledger, Numbered::session);
    file_ids_.use(ledger, Numbered::file);
    return {};
}

DeviceIndex Store::inherited_device(SessionId session, std::string_view path) const {
    return tree_.device_of(at(session).who, path).value_or(0);
}

Result<Tree::Spot> Store::check_create(const Session& session, const CreateSpec& spec) const {
    bool empty = (spec.flags & kCreateEmpty) != 0;
    if (spec.size_bytes == 0 && !empty) return fail(EINVAL, "an object must have at least one byte");
    if (spec.size_bytes != 0 && empty)
        return fail(EINVAL, "an empty object has no bytes, and {} were asked for", spec.size_bytes);
    if ((spec.flags & kCreateOwner) != 0 && !session.who.is_root()) {
        return fail(EPERM, "only root makes objects that belong to others");
    }
    if (spec.device >= devices_.size()) return fail(ENODEV, "there is no such device");
    const DeviceInfo& device = devices_[spec.device];
    if (spec.size_bytes > device.capacity_bytes) {
        return fail(ENOSPC, "{} bytes do not fit {}, which has {}", spec.size_bytes, device.name,
                    device.capacity_bytes);
    }
    if ((spec.flags & kCreateCompressible) != 0 && !device.compressible) {
        return fail(EOPNOTSUPP, "{} has no compressible memory", device.name);
    }
    if ((spec.mode & ~0777u) != 0) return fail(EINVAL, "mode {:o} has bits besides the permissions", spec.mode);
    if ((spec.flags & kCreateEphemeral) != 0 && (spec.flags & kCreateKeep) != 0)
        return fail(EINVAL, "an ephemeral object ends with its session and cannot be kept");
    TRY(Lifetimes::check_ttl(spec.ttl_ns));
    if ((spec.flags & kCreateTtlUnused) != 0 && spec.ttl_ns == 0)
        return fail(EINVAL, "a ttl since the last use was asked for, but no ttl");
    if (spec.attributes != nullptr) {
        for (const auto& [name, value] : *spec.attributes) TRY(check_attribute_name(name));
        TRY(Operations::check_attributes(*spec.attributes));
    }
    if ((spec.flags & kCreateUnnamed) == 0) return tree_.find_free(session.who, spec.name);
    if ((spec.flags & kCreateKeep) != 0)
        return fail(EINVAL, "an object without a name cannot be kept: nobody would find it");
    Tree::Spot spot = TRY(tree_.find_target(session.who, nullptr, nullptr, spec.name, true));
    const Link* old = Tree::entry_at(spot);
    if (old != nullptr && old->node->kind == NodeKind::directory)
        return fail(EISDIR, "\"{}\" is a directory", spec.name);
    return spot;
}

Result<std::variant<Object*, ExtentNeed>> Store::create(SessionId session_id, const CreateSpec& spec) {
    Session& session = at(session_id);
    const Tree::Spot spot = TRY(check_create(session, spec));
    TRY(reserve_lease(session));
    const bool for_other = (spec.flags & kCreateOwner) != 0;
    uint32_t mode = spec.mode;
    if (spec.default_mode) mode = for_other ? 0600 : default_object_mode(spot.parent->default_acl);
    const Maker maker =
        for_other ? Maker{spec.uid, spec.gid, mode, true} : Maker{session.who.uid, session.who.gid, mode};
    TRY(operations_.check_room(maker.uid, spec.name.size() + Operations::acl_bytes_in(*spot.parent, maker, false) +
                                              (spec.attributes ? bytes_of(*spec.attributes) : 0)));
    // Directories that are made for the path pass the default ACL on.
    const InheritedRights rights = operations_.rights_in(*spot.parent, maker, false);
    const gid_t group = Operations::group_in(*spot.parent, maker);
    TRY(limits_->check_new(maker.uid, group, *spot.parent, spec.device, spec.size_bytes));
    SlabKey key{
        spec.device, maker.uid, group, static_cast<uint16_t>(rights.mode), (spec.flags & kCreateCompressible) != 0, {}};
    if ((rights.mode & 077) != 0) {
        key.reach = key_reach(rights.mode, rights.access, tree_.reach_of_new(session.who, spot));
    }

    const DeviceInfo& device = devices_[spec.device];
    Place where{spec.extent, 0};
    uint32_t flags =
        spec.flags & (kCreateKeep | kCreateCompressible | kCreateDedicated | kCreateEvictable | kCreateEphemeral);
    if ((spec.flags & kCreateEmpty) != 0) {
        flags |= kCreateDedicated;
    } else if (spec.size_bytes <= limits::kSmallObjectBytes && (spec.flags & kCreateDedicated) == 0) {
        std::optional<Extents::Writer> writer;
        if (spec.map) writer = {session_id, spec.batch_bytes};
        auto placed = extents_.place_small(key, spec.size_bytes, device, writer);
        if (auto* need = std::get_if<ExtentNeed>(&placed)) {
            TRY(extents_.check_descriptors(maker.uid));
            return *need;
        }
        where = std::get<Place>(placed);
    } else {
        flags |= kCreateDedicated;
        if (where.extent == nullptr) {
            if (!device.files) TRY(extents_.check_descriptors(maker.uid));
            const bool fixed = limits_->limits_bytes(maker.uid, group, *spot.parent);
            const bool exact = device.files && !fixed;
            uint64_t bytes = exact ? spec.size_bytes : round_up(spec.size_bytes, device.granularity_bytes);
            return ExtentNeed{spec.device, bytes, bytes, key.compressible, std::nullopt, false, maker.uid, fixed};
        }
    }

    Object* object = operations_.make_object(*spot.parent, maker);
    // Also without a name, which it gets when its bytes are there: they would be in vain.
    limits_->count_in(*object, *spot.parent);
    if (spec.attributes != nullptr && !spec.attributes->empty()) {
        object->attributes = std::make_unique<Attributes>(*spec.attributes);
        object->attribute_bytes = static_cast<uint32_t>(bytes_of(*spec.attributes));
    }
    object->flags = flags | inherited_flags(*spot.parent);
    object->device = spec.device;
    place(object, where, spec.size_bytes);
    if ((spec.flags & kCreateUnnamed) == 0) {
        std::string_view name;
        Directory* parent = tree_.make_way(session.who, spot, &name);
        tree_.insert(parent, name, object);
    }
    accounts_.update(*object);
    if (spec.ttl_ns != 0) lifetimes_->set_ttl(*object, spec.ttl_ns, (spec.flags & kCreateTtlUnused) != 0);
    if ((flags & kCreateKeep) == 0) {
        object->creator = session_id;
        object->next_unsealed = session.unsealed;
        if (session.unsealed != nullptr) session.unsealed->previous_unsealed = object;
        session.unsealed = object;
    }
    add_lease(session_id, session, object, Access::write);
    if (spec.map) {
        auto mapped = begin_mapping(session_id, object, Access::write);
        assert(mapped);  // the place was chosen so that the session may map it
    }
    return object;
}

Result<Object*> Store::find_object(const Session& session, std::string_view name) const {
    TRY(check_name(name));
    Node* node = TRY(tree_.find(session.who, name, Tree::Last::follow));
    if (node->kind == NodeKind::directory) return fail(EISDIR, "\"{}\" is a directory", name);
    if (node->kind != NodeKind::object) return fail(EINVAL, "\"{}\" is no object but a special file", name);
    return static_cast<Object*>(node);
}

Result<Object*> Store::open(SessionId session, std::string_view name, Access access, bool sealed_only) {
    Session& by = at(session);
    return open_object(session, TRY(find_object(by, name)), name, access, sealed_only);
}

Object* Store::object(NodeId id) const {
    Node* node = nodes_.find(id);
    return node == nullptr ? nullptr : as_object(node);
}

Object* Store::find_id(const Credentials& who, NodeId id) const {
    Object* found = object(id);
    if (found == nullptr || !is_permitted(*found, who, kRightRead) || !Tree::has_way_to(who, *found)) return nullptr;
    return found;
}

Result<Object*> Store::open_id(SessionId session, NodeId id, Access access, bool sealed_only) {
    Object* object = find_id(at(session).who, id);
    if (object == nullptr) return fail(ENOENT, "there is no object {}, or you may not open it", id);
    return open_object(session, object, {}, access, sealed_only);
}

Status Store::check_may_open(const Credentials& who, const Object& object, std::string_view name, Access access) {
    bool write = access == Access::write;
    if (!is_permitted(object, who, write ? kRightRead | kRightWrite : kRightRead)) {
        return fail(EACCES, "permission denied: {} {}", write ? "write" : "read", called(name, object));
    }
    if (write && object.state == ObjectState::sealed) {
        return fail(EPERM, "{} is sealed and cannot be written", called(name, object));
    }
    return {};
}

Result<Object*> Store::open_object(SessionId id, Object* object, std::string_view name, Access access,
                                   bool sealed_only) {
    Session& session = at(id);
    TRY(check_may_open(session.who, *object, name, access));
    if (sealed_only && object->state != ObjectState::sealed) {
        return fail(EBUSY, "{} is not sealed yet", called(name, *object));
    }
    TRY(reserve_lease(session));
    refresh(object);
    if (access == Access::write) tree_.report(*object);  // from now on its size and times may change without a request
    // Clients map an extent once, so an extent that has grown gets a new id.
    if (StoredExtent* extent = object->extent; extent != nullptr && extent->shown_bytes != extent->size_bytes) {
        if (extent->shown_bytes != 0) extents_.renew_id(extent);
        extents_.show(extent);
    }
    return add_lease(id, session, object, access);
}

void Store::pin(Object* object, Access access) {
    ++object->leases;
    if (access == Access::write) ++object->write_leases;  // prevents sealing during the write
}

void Store::unpin(Object* object, Access access) {
    if (access == Access::write) --object->write_leases;
    --object->leases;
    free_if_unused(object);
}

void Store::modified(Object* object) {
    object->modified_ns = object->changed_ns = clock_.now_ns();
    nodes_.changed(object);
    tree_.report(*object);
}

std::shared_ptr<Gate> Store::gate(Object* object) {
    if (!object->gate) {
        object->gate = std::make_shared<Gate>();
        if (object->extent != nullptr) object->gate->memory = object->extent->memory;
        object->gate->offset = object->offset;
        object->gate->in_slab = object->extent != nullptr && object->extent->slab_group != nullptr;
        object->gate->size_bytes = object->size_bytes;
        object->gate->device = object->device;
    }
    return object->gate;
}

void Store::pin_memory(Object* object, Access access) {
    ++object->session_leases;
    pin(object, access);
}

void Store::unpin_memory(Object* object, Access access) {
    --object->session_leases;
    unpin(object, access);
}

Status Store::seal(SessionId session, std::string_view name) {
    Session& by = at(session);
    Object* object = TRY(find_object(by, name));
    if (!is_permitted(*object, by.who, kRightWrite)) {
        return fail(EACCES, "permission denied: seal \"{}\"", name);
    }
    return operations_.seal(*object, writers_of(by, object->id));
}

Status Store::seal_id(SessionId session, NodeId id) {
    Session& by = at(session);
    const uint32_t writers = writers_of(by, id);
    if (writers == 0) return fail(EACCES, "object {} is not open for writing", id);
    return operations_.seal(*by.leases.at(id).object, writers);
}

uint32_t Store::writers_of(const Session& session, NodeId object) {
    auto lease = session.leases.find(object);
    return lease == session.leases.end() ? 0 : lease->second.writers;
}

void Store::forget_creator(Object* object) {
    if (object->creator == 0) return;
    auto session = sessions_.find(object->creator);
    Object*& head = session == sessions_.end() ? lifetimes_->orphans_of(object->creator) : session->second.unsealed;
    if (head == object) head = object->next_unsealed;
    if (object->next_unsealed != nullptr) object->next_unsealed->previous_unsealed = object->previous_unsealed;
    if (object->previous_unsealed != nullptr) object->previous_unsealed->next_unsealed = object->next_unsealed;
    object->next_unsealed = object->previous_unsealed = nullptr;
    object->creator = 0;
    nodes_.changed(object);
}

Status Store::unlink(SessionId session, std::string_view name) {
    Link* link = TRY(tree_.find_removable(at(session).who, name));
    auto removed = operations_.unlink(*link->parent, link->name, Operations::Remove::any);
    // EISDIR as of unlink(2), although an empty directory is removed.
    if (!removed && removed.error().code == ENOTEMPTY) return fail(EISDIR, "\"{}\" is a directory with entries", name);
    return removed;
}

Status Store::rename(SessionId session, std::string_view from, std::string_view to, bool replace) {
    const Credentials& who = at(session).who;
    Link* link = TRY(tree_.find_removable(who, from));
    const Tree::Spot spot = TRY(tree_.find_target(who, link->node, link, to, replace));
    TRY(limits_->check_way(*link->node, spot));
    std::string_view name;
    Directory* parent = tree_.make_way(who, spot, &name);
    return operations_.put(*link->node, link, *parent, name, replace);
}

void Store::unlinked(Node* node, bool replaced) {
    if (node->links > 0) return;
    if (auto* object = as_object(node); object != nullptr && object->extent != nullptr) {
        object->replaced = replaced;
        refresh(object);
    }
    if (auto* object = as_object(node)) {
        accounts_.update(*object);
        lifetimes_->unnamed(*object);
        unnamed_.insert(node->id);
    }
    free_if_unused(node);
}

std::vector<Object*> Store::nameless(DeviceIndex device) const {
    std::vector<Object*> found;
    for (NodeId id : unnamed_) {
        Object* object = this->object(id);
        if (object != nullptr && object->device == device && is_nameless(*object)) found.push_back(object);
    }
    return found;
}

void Store::free_if_unused(Node* node) {
    if (auto* object = as_object(node)) {
        if (object->session_leases == 0) free_retired(object);
        if (object->leases == 0) lifetimes_->released(*object);
        if (object->links > 0 || object->leases > 0) return;
        // A process that looked up the name just before it was replaced must still be able to open the object.
        if (object->replaced && object->is_referenced()) return;
        forget_creator(object);
        free_memory(object);
        unnamed_.erase(object->id);
    }
    if (node->links > 0 || node->is_referenced()) return;
    if (auto* object = as_object(node)) accounts_.remove(*object);
    nodes_.erase(node);
}

void Store::set_size(Object* object, uint64_t size_bytes) {
    object->size_bytes = size_bytes;
    accounts_.update(*object);
    if (object->gate) object->gate->size_bytes.store(size_bytes, std::memory_order_relaxed);
}

std::optional<FileStatus> Store::refresh(Object* object) {
    auto* file = object->extent == nullptr ? nullptr : object->extent->memory->file();
    if (file == nullptr) return std::nullopt;
    auto status = file->status();
    if (!status) return std::nullopt;
    if (object->state == ObjectState::sealed) return *status;  // fixed, even if an old holder changes the file
    set_size(object, status->size_bytes);
    object->extent->size_bytes = status->size_bytes;
    // The bytes were written through the kernel, without a request to gshmd.
    if (status->modified_ns != object->file_modified_ns) {
        object->file_modified_ns = status->modified_ns;
        object->modified_ns = status->modified_ns;
        object->changed_ns = std::max(object->changed_ns, status->modified_ns);
    }
    if (status->accessed_ns != object->file_accessed_ns) {
        object->file_accessed_ns = status->accessed_ns;
        object->accessed_ns = status->accessed_ns;
    }
    return *status;
}

Result<const Node*> Store::stat(SessionId session, std::string_view name, std::vector<Tree::Step>* ret_steps,
                                Tree::Last last) {
    if (!name.empty()) TRY(check_lookup_name(name));
    Node* node = TRY(tree_.find(at(session).who, name, last, ret_steps));
    if (auto* object = as_object(node)) refresh(object);
    return node;
}

Result<std::vector<const Link*>> Store::list(SessionId session, std::string_view path, uint64_t cookie, size_t most,
                                             uint64_t* ret_cookie) {
    if (!path.empty()) TRY(check_lookup_name(path));
    const Node* node = TRY(tree_.find(at(session).who, path, Tree::Last::follow));
    if (node->kind != NodeKind::directory) return fail(ENOTDIR, "\"{}\" is not a directory", path);
    // Both rights, since the properties of the entries are listed as well.
    if (!is_permitted(*node, at(session).who, kRightRead | kRightExecute)) {
        return fail(EACCES, "permission denied: list \"{}\"", path);
    }
    auto entries = static_cast<const Directory*>(node)->order.after(cookie, most, ret_cookie);
    for (const Link* entry : entries) {
        if (auto* object = as_object(entry->node)) refresh(object);
    }
    return entries;
}

Result<std::vector<Holder>> Store::holders(SessionId session, std::string_view name) const {
    const Session& by = at(session);
    Object* object = TRY(find_object(by, name));
    if (!is_permitted(*object, by.who, kRightRead)) return fail(EACCES, "permission denied: holders of \"{}\"", name);
    std::vector<Holder> holders;
    for (const auto& [id, other] : sessions_) {
        auto lease = other.leases.find(object->id);
        if (lease == other.leases.end()) continue;
        holders.push_back({other.who, lease->second.count, lease->second.writers > 0});
    }
    for (const auto& [id, file] : files_) {
        if (file.object == object) holders.push_back({file.who, 1, file.access == Access::write});
    }
    return holders;
}

}  // namespace gshm::core
