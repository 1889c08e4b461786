#include "store/files.h"

#include <algorithm>
#include <cassert>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <utility>

#include "base/limits.h"

namespace gshm {
namespace {

constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;

// The kernel asks for no others.
bool is_entry_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

std::unexpected<Error> refuse(int code) {
    return std::unexpected(Error{code, {}});  // the kernel passes on the number alone
}

Result<Link*> find_link(const Directory& parent, std::string_view name) {
    Link* link = parent.children.find(name);
    if (link == nullptr) return refuse(ENOENT);
    return link;
}

}  // namespace

Node* Files::child(const Directory& parent, std::string_view name) {
    Link* link = parent.children.find(name);
    return link == nullptr ? nullptr : link->node;
}

void Files::unhold(NodeId id) {
    Node* node = find(id);
    if (node == nullptr || node->lookups == 0) return;
    --node->lookups;
    if (!node->is_known()) store_.free_if_unused(node);
}

bool Files::forget(NodeId id, uint64_t lookups) {
    Node* node = find(id);
    if (node == nullptr) return true;
    if (node->uncounted) return false;
    node->lookups -= std::min(lookups, node->lookups);
    if (!node->is_known()) store_.free_if_unused(node);
    return true;
}

void Files::is_unknown(NodeId id, uint64_t lookups) {
    Node* node = find(id);
    if (node == nullptr) return;
    node->known_before = false;
    auto* object = as_object(node);
    // What it was told since it knows by now, and will forget some day. An open file is about to be closed (the kernel's
    // requests overtake each other), or was opened just now.
    if (object != nullptr && object->open_files > 0) object->forgotten_open = true;
    else if (node->lookups == lookups) node->lookups = 0;
    if (!node->is_known()) store_.free_if_unused(node);
}

void Files::forget_all() {
    for (Node* node : store_.nodes_.all()) {
        node->lookups = 0;
        node->known_before = node->uncounted = false;
        if (node->links == 0) store_.free_if_unused(node);
    }
}

Status Files::check_free(const Directory& parent, std::string_view name) {
    if (!is_entry_name(name)) return refuse(EINVAL);
    if (name.size() > limits::kNamePartBytes) return refuse(ENAMETOOLONG);
    if (parent.links == 0) return refuse(ENOENT);
    if (parent.children.find(name) != nullptr) return refuse(EEXIST);
    return {};
}

template <typename Made>
Made* Files::make(Made* node, Directory& parent, const Maker& maker) {
    node->uid = maker.uid;
    node->gid = maker.gid;
    node->mode = static_cast<uint16_t>(maker.mode & 07777);
    if ((parent.mode & S_ISGID) != 0) {
        node->gid = parent.gid;
        if (node->kind == NodeKind::directory) node->mode |= S_ISGID;
    }
    node->created_ns = node->accessed_ns = node->modified_ns = node->changed_ns = store_.clock_.now_ns();
    // A directory that somebody works in with a file system's means is not to vanish by itself.
    parent.implicit = false;
    return node;
}

Object* Files::make_unnamed(Directory& parent, const Maker& maker) {
    Object* object = make(store_.nodes_.make<Object>(), parent, maker);
    object->device = parent.device.value_or(0);
    object->flags = kCreateKeep | kCreateDedicated;
    store_.unnamed_.insert(object->id);
    store_.accounts_.update(*object);
    return object;
}

Result<Object*> Files::make_object(Directory& parent, std::string_view name, const Maker& maker) {
    TRY(check_free(parent, name));
    Tree::Quiet quiet(store_.tree_);
    Object* object = make_unnamed(parent, maker);
    store_.unnamed_.erase(object->id);
    store_.tree_.insert(&parent, name, object);
    store_.accounts_.update(*object);
    return object;
}

Result<Node*> Files::make_directory(Directory& parent, std::string_view name, const Maker& maker) {
    TRY(check_free(parent, name));
    Tree::Quiet quiet(store_.tree_);
    Directory* directory = make(store_.nodes_.make<Directory>(), parent, maker);
    directory->device = parent.device;
    store_.tree_.insert(&parent, name, directory);
    return directory;
}

Result<Node*> Files::make_symlink(Directory& parent, std::string_view name, const Maker& maker,
                                  std::string_view target) {
    TRY(check_free(parent, name));
    Tree::Quiet quiet(store_.tree_);
    Node* node = make(store_.nodes_.make<Symlink>(target), parent, {maker.uid, maker.gid, 0777});
    store_.tree_.insert(&parent, name, node);
    return node;
}

Result<Node*> Files::make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                                  uint32_t number) {
    TRY(check_free(parent, name));
    Tree::Quiet quiet(store_.tree_);
    Node* node = make(store_.nodes_.make<Special>(type, number), parent, maker);
    store_.tree_.insert(&parent, name, node);
    return node;
}

Status Files::link(Node& node, Directory& parent, std::string_view name) {
    if (node.kind == NodeKind::directory) return refuse(EPERM);
    TRY(check_free(parent, name));
    Tree::Quiet quiet(store_.tree_);
    parent.implicit = false;
    store_.unnamed_.erase(node.id);
    store_.tree_.insert(&parent, name, &node);
    // A file that had no name (O_TMPFILE) is no longer memory without one.
    if (auto* object = as_object(&node)) store_.accounts_.update(*object);
    store_.rights_changed(node);
    return {};
}

Status Files::unlink(Directory& parent, std::string_view name) {
    Link* link = TRY(find_link(parent, name));
    if (link->node->kind == NodeKind::directory) return refuse(EISDIR);
    Tree::Quiet quiet(store_.tree_);
    Node* node = link->node;
    parent.implicit = false;
    store_.tree_.remove(link);
    store_.unlinked(node);
    return {};
}

Status Files::remove_directory(Directory& parent, std::string_view name) {
    Link* link = TRY(find_link(parent, name));
    auto* directory = as_directory(link->node);
    if (directory == nullptr) return refuse(ENOTDIR);
    if (!directory->children.empty()) return refuse(ENOTEMPTY);
    Tree::Quiet quiet(store_.tree_);
    parent.implicit = false;
    store_.tree_.remove(link);
    store_.unlinked(directory);
    return {};
}

Status Files::rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags) {
    if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0) return refuse(EINVAL);
    const bool exchange = (flags & RENAME_EXCHANGE) != 0;
    if (exchange && flags != RENAME_EXCHANGE) return refuse(EINVAL);
    if (!is_entry_name(new_name)) return refuse(EINVAL);
    if (new_name.size() > limits::kNamePartBytes) return refuse(ENAMETOOLONG);
    Link* link = TRY(find_link(from, name));
    Link* old = to.children.find(new_name);
    if (to.links == 0) return refuse(ENOENT);
    // The kernel has looked, but may not know yet what the library has moved.
    if (Tree::is_inside(to, *link->node) || (exchange && old != nullptr && Tree::is_inside(from, *old->node))) {
        return refuse(EINVAL);
    }
    if (old != nullptr && old->node == link->node && (flags & RENAME_NOREPLACE) == 0) return {};  // as rename(2)
    Tree::Quiet quiet(store_.tree_);
    from.implicit = to.implicit = false;
    if (exchange) {
        if (old == nullptr) return refuse(ENOENT);
        store_.tree_.exchange(link, old);
        store_.rights_changed(*link->node);
        store_.rights_changed(*old->node);
        return {};
    }
    Node* replaced = old == nullptr ? nullptr : old->node;
    if (replaced != nullptr) {
        if ((flags & RENAME_NOREPLACE) != 0) return refuse(EEXIST);
        bool is_directory = link->node->kind == NodeKind::directory;
        auto* directory = as_directory(replaced);
        if (directory != nullptr && !is_directory) return refuse(EISDIR);
        if (directory == nullptr && is_directory) return refuse(ENOTDIR);
        if (directory != nullptr && !directory->children.empty()) return refuse(ENOTEMPTY);
        store_.tree_.remove(old, true);
    }
    store_.tree_.move(link, &to, new_name);
    store_.rights_changed(*link->node);
    if ((flags & RENAME_WHITEOUT) != 0) {
        TRY(make_special(from, name, {0, 0, 0}, S_IFCHR, 0));  // what union mounts take for "removed"
    }
    if (replaced != nullptr) store_.unlinked(replaced, true);
    return {};
}

void Files::change(Node& node, const NodeChanges& changes) {
    if (changes.mode) node.mode = static_cast<uint16_t>(*changes.mode & 07777);
    if (changes.uid) node.uid = *changes.uid;
    if (changes.gid) node.gid = *changes.gid;
    if (changes.accessed_ns) node.accessed_ns = *changes.accessed_ns;
    if (changes.modified_ns) node.modified_ns = *changes.modified_ns;
    node.changed_ns = store_.clock_.now_ns();
    changed(node);
    if (auto* directory = as_directory(&node)) directory->implicit = false;
    if (changes.mode || changes.uid || changes.gid) store_.rights_changed(node);
    auto* object = as_object(&node);
    if (object != nullptr && changes.uid) store_.accounts_.update(*object);
    auto* file = object == nullptr || object->extent == nullptr ? nullptr : object->extent->memory->file();
    if (file == nullptr || !file->set_times(node.accessed_ns, node.modified_ns)) return;
    if (auto status = file->status()) {
        object->file_accessed_ns = status->accessed_ns;
        object->file_modified_ns = status->modified_ns;
    }
}

void Files::accessed(Node& node) {
    int64_t now = store_.clock_.now_ns();
    // As relatime: often enough to tell whether it was read since it was written.
    bool due = node.accessed_ns <= node.modified_ns || node.accessed_ns <= node.changed_ns ||
               now - node.accessed_ns >= kDayNs;
    if (!due) return;
    node.accessed_ns = now;
    changed(node);
}

void Files::modified(Object& object) {
    object.modified_ns = object.changed_ns = store_.clock_.now_ns();
    // A file of the kernel's has times of its own, which will still be there.
    if (object.extent == nullptr || object.extent->memory->file() == nullptr) changed(object);
}

void Files::set_size(Object& object, uint64_t size_bytes) {
    store_.set_size(&object, size_bytes);
    changed(object);
}

Status Files::set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags) {
    bool there = node.attributes && node.attributes->find(name) != node.attributes->end();
    if ((flags & XATTR_CREATE) != 0 && there) return refuse(EEXIST);
    if ((flags & XATTR_REPLACE) != 0 && !there) return refuse(ENODATA);
    size_t total = name.size() + value.size();
    if (node.attributes) {
        for (const auto& [other, bytes] : *node.attributes) {
            if (other != name) total += other.size() + bytes.size();
        }
    }
    if (total > limits::kAttributesBytes) return refuse(ENOSPC);
    if (!node.attributes) node.attributes = std::make_unique<Attributes>();
    node.attributes->insert_or_assign(std::string(name), std::string(value));
    node.changed_ns = store_.clock_.now_ns();
    changed(node);
    return {};
}

Status Files::remove_attribute(Node& node, std::string_view name) {
    if (!node.attributes || node.attributes->erase(std::string(name)) == 0) return refuse(ENODATA);
    node.changed_ns = store_.clock_.now_ns();
    changed(node);
    return {};
}

Status Files::seal(Object& object) {
    if (object.state == ObjectState::sealed) return {};
    if (object.write_leases > 0) return refuse(EBUSY);
    store_.refresh(&object);
    object.state = ObjectState::sealed;
    object.changed_ns = store_.clock_.now_ns();
    changed(object);
    store_.forget_creator(&object);
    store_.count_sealed(&object);
    store_.tree_.report_sealed(object);
    return {};
}

Result<FileId> Files::open(Object& object, Access access, const Credentials& who, uint64_t request) {
    if (auto resumed = store_.resumed_files_.find(request); resumed != store_.resumed_files_.end()) {
        FileId id = resumed->second;
        store_.resumed_files_.erase(resumed);
        if (opened(object.id, id) == &object) return id;
    }
    TRY(store_.reserve_note());
    FileId id = store_.file_ids_.take();
    Store::OpenFile file{&object, access, who, request, Ledger::kNone};
    if (store_.ledger_ != nullptr) {
        file.slot = store_.ledger_->add(LedgerKind::file, id, object.id, access == Access::write ? 1 : 0,
                                        {request, who.uid, who.gid, static_cast<uint64_t>(who.pid)});
    }
    store_.files_.emplace(id, std::move(file));
    object.awaited = false;
    ++object.open_files;
    if (access == Access::write) ++object.write_opens;
    store_.pin(&object, access);
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
    --object->open_files;
    object->awaited = false;
    store_.refresh(object);
    store_.unpin(object, access);
}

void Files::close_all() {
    while (!store_.files_.empty()) close(store_.files_.begin()->first);
}

Status Files::note_backing(const Object& object, int32_t id) {
    TRY(store_.reserve_note());
    Ledger* ledger = store_.ledger_;
    Ledger::Slot slot = ledger == nullptr ? Ledger::kNone
                                          : ledger->add(LedgerKind::backing, static_cast<uint32_t>(id), object.id,
                                                        object.extent->key);
    store_.backing_[object.id] = {id, slot};
    return {};
}

void Files::drop_left_backing() {
    for (const Store::Backing& backing : std::exchange(store_.left_backing_, {})) {
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
    for (const auto& backing : std::exchange(store_.left_backing_, {})) store_.erase_note(backing.slot);
}

}  // namespace gshm
