#include "store/files.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "store/account_limits.h"
#include "store/acl.h"
#include "store/evictables.h"

namespace gshm::core {
namespace {

constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;

}  // namespace

Node* Files::child(const Directory& parent, std::string_view name) {
    Link* link = parent.children.find(name);
    return link == nullptr ? nullptr : link->node;
}

Result<Object*> Files::make_unnamed(Directory& parent, const Maker& maker) {
    const DeviceIndex device = parent.device.value_or(0);
    AccountLimits& limits = store_.limits();
    TRY(limits.check_new(maker.uid, Operations::group_in(parent, maker), parent, device, 0));
    Object* object = in(parent).make_object(parent, maker);
    limits.count_in(*object, parent);
    object->device = device;
    object->flags = kCreateKeep | kCreateDedicated | kMountFile | Store::inherited_flags(parent);
    store_.unnamed_.insert(object->id);
    store_.accounts_.update(*object);
    return object;
}

Result<Object*> Files::make_object(Directory& parent, std::string_view name, const Maker& maker) {
    TRY(Operations::check_free(parent, name));
    TRY(store_.operations_.check_room(maker.uid, name.size() + Operations::acl_bytes_in(parent, maker, false)));
    Tree::Quiet quiet(store_.tree_);
    Object* object = TRY(make_unnamed(parent, maker));
    store_.unnamed_.erase(object->id);
    store_.tree_.insert(&parent, name, object);
    store_.accounts_.update(*object);
    return object;
}

Result<Directory*> Files::make_directory(Directory& parent, std::string_view name, const Maker& maker) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).make_directory(parent, name, maker);
}

Result<Node*> Files::make_symlink(Directory& parent, std::string_view name, const Maker& maker,
                                  std::string_view target) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).make_symlink(parent, name, maker, target);
}

Result<Node*> Files::make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                                  uint32_t number) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).make_special(parent, name, maker, type, number);
}

Status Files::link(Node& node, Directory& parent, std::string_view name) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).link(node, parent, name);
}

Status Files::unlink(Directory& parent, std::string_view name) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).unlink(parent, name, Operations::Remove::other);
}

Status Files::remove_directory(Directory& parent, std::string_view name) {
    Tree::Quiet quiet(store_.tree_);
    return in(parent).unlink(parent, name, Operations::Remove::directory);
}

Status Files::rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags) {
    Tree::Quiet quiet(store_.tree_);
    to.implicit = false;
    return in(from).rename(from, name, to, new_name, flags);
}

void Files::change(Node& node, const NodeChanges& changes) {
    Tree::Quiet quiet(store_.tree_);
    if (auto* directory = as_directory(&node)) directory->implicit = false;
    store_.operations_.change(node, changes);
}

Status Files::set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags) {
    Tree::Quiet quiet(store_.tree_);
    return store_.operations_.set_attribute(node, name, value, flags);
}

Status Files::remove_attribute(Node& node, std::string_view name) {
    Tree::Quiet quiet(store_.tree_);
    return store_.operations_.remove_attribute(node, name);
}

Status Files::set_acl(Node& node, AclKind kind, std::vector<AclEntry> entries, bool drop_set_group) {
    Tree::Quiet quiet(store_.tree_);
    if (auto* directory = as_directory(&node)) directory->implicit = false;
    return store_.operations_.set_acl(node, kind, std::move(entries), drop_set_group);
}

Status Files::seal(Object& object) {
    Tree::Quiet quiet(store_.tree_);
    return store_.operations_.seal(object, 0);
}

void Files::accessed(Node& node) {
    int64_t now = store_.clock_.now_ns();
    // As with relatime: often enough to show whether the node was read after its last change.
    bool due =
        node.accessed_ns <= node.modified_ns || node.accessed_ns <= node.changed_ns || now - node.accessed_ns >= kDayNs;
    if (!due) return;
    node.accessed_ns = now;
    changed(node);
}

void Files::modified(Object& object) {
    object.modified_ns = object.changed_ns = store_.clock_.now_ns();
    // A file keeps its own times, which outlive the process.
    if (object.extent == nullptr || object.extent->memory->file() == nullptr) changed(object);
}

void Files::set_size(Object& object, uint64_t size_bytes) {
    store_.set_size(&object, size_bytes);
    changed(object);
}

Result<FileId> Files::open(Object& object, Access access, const Credentials& who, uint64_t request) {
    if (auto resumed = store_.resumed_files_.find(request); resumed != store_.resumed_files_.end()) {
        FileId id = resumed->second;
        store_.resumed_files_.erase(resumed);
        if (opened(object.id, id) == &object) return id;
    }
    Budgets::Charge charge(store_.budgets_.user(who.uid), Resource::leases);
    if (!charge.take(1)) return std::unexpected(charge.refusal());
    TRY(store_.reserve_note());
    FileId id = store_.file_ids_.take();
    Store::OpenFile file{&object, access, who, request, Ledger::kNone, std::move(charge)};
    if (store_.ledger_ != nullptr) {
        file.slot = store_.ledger_->add(LedgerKind::file, id, object.id, access == Access::write ? 1 : 0,
                                        {request, who.uid, who.gid, static_cast<uint64_t>(who.pid)});
    }
    store_.files_.emplace(id, std::move(file));
    object.awaited = false;
    ++object.open_files;
    if (access == Access::write) ++object.write_opens;
    store_.pin(&object, access);
    store_.note_use(object);
    return id;
}

Object* Files::opened(NodeId node, FileId file) const {
    auto found = store_.files_.find(file);
    if (found == store_.files_.end() || found->second.object->id != node) return nullptr;
    return found->second.object;
}

std::optional<Access> Files::access_of(FileId file) const {
    auto found = store_.files_.find(file);
    if (found == store_.files_.end()) return std::nullopt;
    return found->second.access;
}

void Files::close(FileId file) {
    auto found = store_.files_.find(file);
    if (found == store_.files_.end()) return;
    Object* object = found->second.object;
    Access access = found->second.access;
    store_.erase_note(found->second.slot);
    store_.files_.erase(found);
    // The kernel has as many backing files as there are open ones.
    if (--object->open_files == 0) store_.drop_backing(object->id);
    object->awaited = false;
    store_.refresh(object);
    store_.note_use(*object);
    store_.evictables_->released(*object);
    store_.unpin(object, access);
}

void Files::close_all() {
    while (!store_.files_.empty()) close(store_.files_.begin()->first);
}

Status Files::note_backing(const Object& object, int32_t id) {
    TRY(store_.reserve_note());
    Ledger* ledger = store_.ledger_;
    Ledger::Slot slot =
        ledger == nullptr ? Ledger::kNone
                          : ledger->add(LedgerKind::backing, static_cast<uint32_t>(id), object.id, object.extent->key);
    store_.backing_[object.id] = {id, slot};
    return {};
}

void Files::drop_former_backing() {
    for (const Store::Backing& backing : std::exchange(store_.former_backing_, {})) {
        if (store_.close_backing_) store_.close_backing_(backing.id);
        store_.erase_note(backing.slot);
    }
}

int32_t Files::backing_of(NodeId node) const {
    auto found = store_.backing_.find(node);
    return found == store_.backing_.end() ? 0 : found->second.id;
}

bool Files::has_backing(int32_t id) const {
    return std::ranges::any_of(store_.backing_, [&](const auto& entry) { return entry.second.id == id; });
}

void Files::forget_all_backing() {
    for (const auto& [node, backing] : std::exchange(store_.backing_, {})) store_.erase_note(backing.slot);
    for (const auto& backing : std::exchange(store_.former_backing_, {})) store_.erase_note(backing.slot);
}

}  // namespace gshm::core
