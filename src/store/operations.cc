#include "store/operations.h"

#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/limits.h"
#include "store/account_limits.h"
#include "store/acl.h"
#include "store/lifetimes.h"
#include "store/store.h"

namespace gshm::core {
namespace {

bool is_entry_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

std::string path_in(const Directory& parent, std::string_view name) {
    return parent.parent() == nullptr ? std::string(name) : fmt::format("{}/{}", Tree::path_of(parent), name);
}

Status check_entry_name(std::string_view name) {
    if (!is_entry_name(name)) return fail(EINVAL, "\"{}\" is no name of an entry", name);
    if (name.size() <= limits::kNamePartBytes) return {};
    return fail(ENAMETOOLONG, "a part of a name has at most {} bytes", limits::kNamePartBytes);
}

Result<Link*> find_link(const Directory& parent, std::string_view name) {
    Link* link = parent.children.find(name);
    if (link == nullptr) return fail(ENOENT, "no such object: \"{}\"", path_in(parent, name));
    return link;
}

Status check_attribute(std::string_view name, std::string_view value) {
    if (name.empty()) return fail(EINVAL, "an attribute's name must not be empty");
    if (name.size() > limits::kAttributeNameBytes) {
        return fail(ERANGE, "an attribute's name has at most {} bytes", limits::kAttributeNameBytes);
    }
    if (value.size() > limits::kAttributeValueBytes) {
        return fail(E2BIG, "an attribute's value has at most {} bytes", limits::kAttributeValueBytes);
    }
    return {};
}

Status check_total(size_t bytes) {
    if (bytes <= limits::kAttributesBytes) return {};
    return fail(ENOSPC, "the attributes of an object have at most {} bytes together", limits::kAttributesBytes);
}

}  // namespace

Status Operations::check_free(const Directory& parent, std::string_view name) {
    TRY(check_entry_name(name));
    if (parent.links == 0) return fail(ENOENT, "the directory was removed");
    if (parent.children.find(name) != nullptr) return fail(EEXIST, "\"{}\" exists already", path_in(parent, name));
    return {};
}

Status Operations::check_room(uid_t uid, size_t more_bytes) {
    return store_.nodes_.check_room(uid, limits::kNodeBytes + more_bytes);
}

InheritedRights Operations::rights_in(const Directory& parent, const Maker& maker, bool is_directory) {
    const AclPointer none;
    return inherit_rights(store_.nodes_.acls(), maker.keeps_group ? none : parent.default_acl, maker.mode & 07777,
                          maker.umask, is_directory);
}

size_t Operations::acl_bytes_in(const Directory& parent, const Maker& maker, bool is_directory) {
    if (!parent.default_acl || maker.keeps_group) return 0;
    return parent.default_acl->bytes() * (is_directory ? 2 : 1);
}

template <typename Made>
Made* Operations::own(Made* node, const Directory& parent, const Maker& maker) {
    node->uid = maker.uid;
    node->gid = group_in(parent, maker);
    if (node->kind == NodeKind::symlink) {
        node->mode = 0777;
    } else {
        InheritedRights rights = rights_in(parent, maker, node->kind == NodeKind::directory);
        node->mode = static_cast<uint16_t>(rights.mode);
        node->acl = std::move(rights.access);
        if (auto* directory = as_directory(node)) directory->default_acl = std::move(rights.inherited);
    }
    if (node->kind == NodeKind::directory && gives_group(parent) && !maker.keeps_group) node->mode |= S_ISGID;
    node->created_ns = node->accessed_ns = node->modified_ns = node->changed_ns = store_.clock_.now_ns();
    return node;
}

Object* Operations::make_object(const Directory& parent, const Maker& maker) {
    Object* object = own(store_.nodes_.make<Object>(), parent, maker);
    object->used_ns.store(object->created_ns, std::memory_order_relaxed);
    return object;
}

Result<Directory*> Operations::make_directory(Directory& parent, std::string_view name, const Maker& maker) {
    TRY(check_free(parent, name));
    TRY(check_room(maker.uid, name.size() + acl_bytes_in(parent, maker, true)));
    Directory* directory = own(store_.nodes_.make<Directory>(), parent, maker);
    directory->device = parent.device;
    store_.tree_.insert(&parent, name, directory);
    return directory;
}

Result<Node*> Operations::make_symlink(Directory& parent, std::string_view name, const Maker& maker,
                                       std::string_view target) {
    TRY(check_free(parent, name));
    TRY(check_room(maker.uid, name.size() + target.size()));
    Node* node = own(store_.nodes_.make<Symlink>(target), parent, maker);
    store_.tree_.insert(&parent, name, node);
    return node;
}

Result<Node*> Operations::make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                                       uint32_t number) {
    TRY(check_free(parent, name));
    TRY(check_room(maker.uid, name.size() + acl_bytes_in(parent, maker, false)));
    Node* node = own(store_.nodes_.make<Special>(type, number), parent, maker);
    store_.tree_.insert(&parent, name, node);
    return node;
}

Status Operations::link(Node& node, Directory& parent, std::string_view name) {
    if (node.kind == NodeKind::directory) {
        return fail(EPERM, "\"{}\" is a directory, and has one name", Tree::path_of(node));
    }
    if (node.links > 0) TRY(check_room(node.uid, 0));
    return put(node, nullptr, parent, name, false);
}

Status Operations::unlink(Directory& parent, std::string_view name, Remove what) {
    Link* link = TRY(find_link(parent, name));
    Node* node = link->node;
    auto* directory = as_directory(node);
    if (directory != nullptr && what == Remove::other) {
        return fail(EISDIR, "\"{}\" is a directory", path_in(parent, name));
    }
    if (directory == nullptr && what == Remove::directory) {
        return fail(ENOTDIR, "\"{}\" is not a directory", path_in(parent, name));
    }
    if (directory != nullptr && !directory->children.empty()) {
        return fail(ENOTEMPTY, "\"{}\" is a directory with entries", path_in(parent, name));
    }
    store_.tree_.remove(link);
    store_.tree_.prune(&parent);
    store_.limits_->names_changed(*node);
    store_.unlinked(node);
    return {};
}

Status Operations::put(Node& node, Link* link, Directory& to, std::string_view name, bool replace) {
    TRY(check_entry_name(name));
    if (to.links == 0) return fail(ENOENT, "the directory was removed");
    if (Tree::is_inside(to, node)) return fail(EINVAL, "cannot move \"{}\" into itself", Tree::path_of(node));
    Link* old = to.children.find(name);
    Node* replaced = old == nullptr ? nullptr : old->node;
    uint64_t position = 0;  // in listings: the name keeps it, so that no listing misses the name
    if (old != nullptr) {
        if (!replace) return fail(EEXIST, "\"{}\" exists already", path_in(to, name));
        if (replaced == &node) return {};  // as rename(2): no effect between two names of one object
        const bool is_directory = node.kind == NodeKind::directory;
        auto* directory = as_directory(replaced);
        if (directory != nullptr && !is_directory) return fail(EISDIR, "\"{}\" is a directory", path_in(to, name));
        if (directory == nullptr && is_directory) return fail(ENOTDIR, "\"{}\" is not a directory", path_in(to, name));
        if (directory != nullptr && !directory->children.empty()) {
            return fail(ENOTEMPTY, "\"{}\" is a directory with entries", path_in(to, name));
        }
    }
    TRY(store_.limits_->check_name(node, to));
    if (old != nullptr) {
        position = old->cookie;
        store_.tree_.remove(old, Tree::Removal::replaced);
    }
    if (link == nullptr) {
        auto* object = as_object(&node);
        const bool first = object != nullptr && object->links == 0;
        if (first) object->replaced = false;
        store_.unnamed_.erase(node.id);
        store_.tree_.insert(&to, name, &node, position);
        // The accounts no longer count it as unlinked.
        if (first) {
            store_.accounts_.update(*object);
            store_.lifetimes_->named(*object);
        }
    } else {
        Directory* from = link->parent;
        store_.tree_.move(link, &to, name, position);
        store_.tree_.prune(from);
    }
    store_.limits_->names_changed(node);
    store_.rights_changed(node);
    if (replaced != nullptr) store_.limits_->names_changed(*replaced);
    if (replaced != nullptr) store_.unlinked(replaced, true);
    return {};
}

Status Operations::rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name,
                          unsigned flags) {
    constexpr unsigned kKnown = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    if ((flags & ~kKnown) != 0) return fail(EINVAL, "unknown flags {}", flags);
    const bool exchange = (flags & RENAME_EXCHANGE) != 0;
    if (exchange && flags != RENAME_EXCHANGE) return fail(EINVAL, "an exchange has no other flags");
    TRY(check_entry_name(new_name));
    Link* link = TRY(find_link(from, name));
    if (!exchange) {
        TRY(put(*link->node, link, to, new_name, (flags & RENAME_NOREPLACE) == 0));
        if ((flags & RENAME_WHITEOUT) != 0) TRY(make_special(from, name, {}, S_IFCHR, 0));  // for union mounts
        return {};
    }
    Link* other = TRY(find_link(to, new_name));
    if (to.links == 0) return fail(ENOENT, "the directory was removed");
    if (Tree::is_inside(to, *link->node) || Tree::is_inside(from, *other->node)) {
        return fail(EINVAL, "cannot move \"{}\" into itself", path_in(from, name));
    }
    if (other->node == link->node) return {};
    TRY(store_.limits_->check_name(*link->node, to));
    TRY(store_.limits_->check_name(*other->node, from));
    store_.tree_.exchange(link, other);
    store_.limits_->names_changed(*link->node);
    store_.limits_->names_changed(*other->node);
    store_.rights_changed(*link->node);
    store_.rights_changed(*other->node);
    return {};
}

uint32_t Operations::mode_for_new_owner(const Node& node) {
    uint32_t mode = node.mode;
    if (node.kind == NodeKind::directory) return mode;
    mode &= ~static_cast<uint32_t>(S_ISUID);
    // Without S_IXGRP, S_ISGID means mandatory locking.
    if ((mode & S_IXGRP) != 0) mode &= ~static_cast<uint32_t>(S_ISGID);
    return mode;
}

void Operations::change(Node& node, const NodeChanges& changes) {
    auto* object = as_object(&node);
    // The kernel's own changes to a file are older than this one.
    if (object != nullptr) store_.refresh(object);
    if (changes.mode) {
        node.mode = static_cast<uint16_t>(*changes.mode & 07777);
        node.acl = acl_for_mode(store_.nodes_.acls(), node.acl, node.mode);
    }
    if (changes.uid) node.uid = *changes.uid;
    if (changes.gid) node.gid = *changes.gid;
    if (changes.accessed_ns) node.accessed_ns = *changes.accessed_ns;
    if (changes.modified_ns) node.modified_ns = *changes.modified_ns;
    if (changes.keep) {
        if (auto* directory = as_directory(&node)) directory->implicit = false;
        if (object != nullptr) {
            store_.forget_creator(object);
            object->flags |= kCreateKeep;
            object->flags &= ~uint32_t{kCreateEphemeral};
        }
    }
    node.changed_ns = store_.clock_.now_ns();
    store_.nodes_.changed(&node);
    if (changes.mode || changes.uid || changes.gid) store_.rights_changed(node);
    if (object != nullptr && (changes.uid || changes.gid)) store_.accounts_.update(*object);
    store_.tree_.report(node);
    // The times are set even if they are the same: this changes the ctime of the file, by which the kernel decides
    // whether the next read updates the atime (relatime).
    auto* file = object == nullptr || object->extent == nullptr ? nullptr : object->extent->memory->file();
    if (file == nullptr || !file->set_times(node.accessed_ns, node.modified_ns)) return;
    if (auto status = file->status()) {
        object->file_accessed_ns = status->accessed_ns;
        object->file_modified_ns = status->modified_ns;
    }
}

Status Operations::set_acl(Node& node, AclKind kind, std::vector<AclEntry> entries, bool drop_set_group) {
    if (node.kind == NodeKind::symlink) return fail(EOPNOTSUPP, "a symbolic link has no ACL");
    AclTable& table = store_.nodes_.acls();
    if (kind == AclKind::inherited) {
        auto* directory = as_directory(&node);
        if (directory == nullptr && entries.empty()) return {};
        if (directory == nullptr) return fail(EACCES, "only a directory has a default ACL");
        AclPointer acl = table.intern(std::move(entries));
        const uint64_t before = directory->default_acl ? directory->default_acl->bytes() : 0;
        if (acl && acl->bytes() > before) TRY(store_.nodes_.check_room(node.uid, acl->bytes() - before));
        directory->default_acl = std::move(acl);
        // What was wanted of future entries stays until they come.
        directory->implicit = false;
        change(node, {});
        return {};
    }
    NodeChanges changes;
    changes.mode = mode_for_acl(entries, node.mode);
    if (drop_set_group) *changes.mode &= ~static_cast<uint32_t>(S_ISGID);
    AclPointer acl;
    if (!is_mode_only(entries)) acl = table.intern(std::move(entries));
    const uint64_t before = node.acl ? node.acl->bytes() : 0;
    if (acl && acl->bytes() > before) TRY(store_.nodes_.check_room(node.uid, acl->bytes() - before));
    node.acl = std::move(acl);
    change(node, changes);
    return {};
}

Status Operations::check_attributes(const Attributes& attributes) {
    for (const auto& [name, value] : attributes) TRY(check_attribute(name, value));
    return check_total(bytes_of(attributes));
}

Status Operations::set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags) {
    TRY(check_attribute(name, value));
    if (auto* object = as_object(&node); object != nullptr && name == kEvictableAttribute) {
        const bool was = (object->flags & kCreateEvictable) != 0;
        if ((flags & XATTR_CREATE) != 0 && was) return fail(EEXIST, "there is an attribute \"{}\"", name);
        if ((flags & XATTR_REPLACE) != 0 && !was) return fail(ENODATA, "there is no attribute \"{}\"", name);
        store_.set_evictable(*object, is_set(value));
        change(node, {});
        return {};
    }
    const bool there = node.attributes && node.attributes->find(name) != node.attributes->end();
    if ((flags & XATTR_CREATE) != 0 && there) return fail(EEXIST, "there is an attribute \"{}\"", name);
    if ((flags & XATTR_REPLACE) != 0 && !there) return fail(ENODATA, "there is no attribute \"{}\"", name);
    const size_t before = there ? name.size() + node.attributes->find(name)->second.size() : 0;
    const size_t after = name.size() + value.size();
    TRY(check_total(node.attribute_bytes - before + after));
    if (after > before) TRY(store_.nodes_.check_room(node.uid, after - before));
    if (!node.attributes) node.attributes = std::make_unique<Attributes>();
    node.attributes->insert_or_assign(std::string(name), std::string(value));
    node.attribute_bytes = static_cast<uint32_t>(node.attribute_bytes - before + after);
    change(node, {});
    return {};
}

Status Operations::remove_attribute(Node& node, std::string_view name) {
    if (auto* object = as_object(&node); object != nullptr && name == kEvictableAttribute) {
        if ((object->flags & kCreateEvictable) == 0) return fail(ENODATA, "there is no attribute \"{}\"", name);
        store_.set_evictable(*object, false);
        change(node, {});
        return {};
    }
    const auto found = node.attributes ? node.attributes->find(name) : Attributes::iterator{};
    if (!node.attributes || found == node.attributes->end()) {
        return fail(ENODATA, "there is no attribute \"{}\"", name);
    }
    node.attribute_bytes -= static_cast<uint32_t>(found->first.size() + found->second.size());
    node.attributes->erase(found);
    change(node, {});
    return {};
}

Result<std::string_view> Operations::attribute(const Node& node, std::string_view name) {
    // A flag of the object, which tools that copy all attributes need not see: it is not listed.
    if (node.kind == NodeKind::object && name == kEvictableAttribute) {
        if ((static_cast<const Object&>(node).flags & kCreateEvictable) != 0) return "1";
        return fail(ENODATA, "there is no attribute \"{}\"", name);
    }
    if (node.attributes) {
        auto found = node.attributes->find(name);
        if (found != node.attributes->end()) return found->second;
    }
    return fail(ENODATA, "there is no attribute \"{}\"", name);
}

Status Operations::check_sealable(const Object& object, uint32_t own) {
    if (object.state == ObjectState::sealed || object.write_leases <= own) return {};
    return fail(EBUSY, "another process has the object open for writing (see `gshm holders`)");
}

Status Operations::seal(Object& object, uint32_t own) {
    if (object.state == ObjectState::sealed) return {};
    TRY(check_sealable(object, own));
    store_.refresh(&object);  // for the last time: the size and times of a sealed object do not change
    object.state = ObjectState::sealed;
    note_sealed(object);
    store_.tree_.report_sealed(object);
    return {};
}

void Operations::note_sealed(Object& object) {
    // The bytes have not changed, so modified_ns does not change.
    object.changed_ns = store_.clock_.now_ns();
    store_.nodes_.changed(&object);
    if ((object.flags & kCreateEphemeral) == 0) store_.forget_creator(&object);
    store_.count_sealed(&object);
    store_.accounts_.update(object);
    store_.tree_.report(object);
}

}  // namespace gshm::core
