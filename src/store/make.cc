// What besides objects has a name, further names, and changes of rights.
#include <sys/stat.h>

#include "base/limits.h"
#include "base/name.h"
#include "store/store.h"

namespace gshm {
namespace {

Status check_make(const Credentials& who, const MakeSpec& spec, size_t device_count) {
    if ((spec.flags & ~uint32_t{kCreateKeep | kCreateOwner}) != 0) return fail(EINVAL, "unknown make flags {:#x}", spec.flags);
    if ((spec.mode & ~07777u) != 0) return fail(EINVAL, "mode {:o} has bits besides the permissions", spec.mode);
    if ((spec.flags & kCreateOwner) != 0 && !who.is_root()) {
        return fail(EPERM, "only root makes what belongs to others");
    }
    if (spec.device && *spec.device >= device_count) return fail(ENODEV, "there is no such device");
    if (spec.kind == NodeKind::directory) return {};
    if (spec.kind != NodeKind::symlink) return fail(EINVAL, "only directories and symbolic links are made so");
    if (spec.target.empty() || spec.target.size() > limits::kNameBytes || spec.target.find('\0') != spec.target.npos) {
        return fail(EINVAL, "a symbolic link leads to a path of 1 to {} bytes", limits::kNameBytes);
    }
    return {};
}

}  // namespace

Status Store::make(SessionId session, const MakeSpec& spec) {
    const Credentials& who = at(session).who;
    TRY(check_make(who, spec, devices_.size()));
    TRY(tree_.check_link(who, spec.name, nullptr));
    Node* node = nullptr;
    if (spec.kind == NodeKind::directory) {
        auto* directory = nodes_.make<Directory>();
        directory->mode = static_cast<uint16_t>(spec.mode == 0 ? 0755 : spec.mode);
        directory->device = spec.device ? spec.device : tree_.device_of(spec.name);
        directory->implicit = (spec.flags & kCreateKeep) == 0;
        node = directory;
    } else {
        node = nodes_.make<Symlink>(spec.target);
        node->mode = 0777;
    }
    bool for_other = (spec.flags & kCreateOwner) != 0;
    node->uid = for_other ? spec.uid : who.uid;
    node->gid = for_other ? spec.gid : who.gid;
    node->created_ns = node->accessed_ns = node->modified_ns = node->changed_ns = clock_.now_ns();
    return tree_.link(who, spec.name, node);  // which was asked before: it does not fail
}

Result<std::string_view> Store::read_link(SessionId session, std::string_view name) const {
    TRY(check_name(name));
    const Node* node = TRY(tree_.find(at(session).who, name, Tree::Last::keep));
    if (node->kind != NodeKind::symlink) return fail(EINVAL, "\"{}\" is no symbolic link", name);
    return static_cast<const Symlink*>(node)->target;
}

Status Store::add_name(SessionId session, std::string_view name, std::string_view new_name) {
    const Credentials& who = at(session).who;
    TRY(check_name(name));
    Node* node = TRY(tree_.find(who, name, Tree::Last::keep));
    if (node->kind == NodeKind::directory) return fail(EPERM, "\"{}\" is a directory, and has one name", name);
    // As the kernel with protected_hardlinks: nobody keeps what another could not give away.
    bool plain = node->kind == NodeKind::object && (node->mode & (S_ISUID | S_ISGID)) == 0;
    bool usable = plain && is_permitted(*node, who, kRightRead | kRightWrite);
    if (!who.is_root() && who.uid != node->uid && !usable) {
        return fail(EPERM, "\"{}\" belongs to another user, and you may not write to it", name);
    }
    TRY(tree_.link(who, new_name, node));
    rights_changed(*node);
    return {};
}

Status Store::change(SessionId session, std::string_view name, const ChangeSpec& changes) {
    const Credentials& who = at(session).who;
    if ((changes.what & ~uint32_t{kChangeMode | kChangeOwner | kChangeKeep}) != 0) {
        return fail(EINVAL, "unknown changes {:#x}", changes.what);
    }
    if ((changes.mode & ~07777u) != 0) return fail(EINVAL, "mode {:o} has bits besides the permissions", changes.mode);
    TRY(check_name(name));
    Node* node = TRY(tree_.find(who, name, Tree::Last::keep));
    if (!who.is_root() && (who.uid != node->uid || (changes.what & kChangeOwner) != 0)) {
        return fail(EPERM, "only {} may change that of \"{}\"",
                    (changes.what & kChangeOwner) != 0 ? "root" : "its owner and root", name);
    }
    if ((changes.what & kChangeOwner) != 0) {
        node->uid = changes.uid;
        node->gid = changes.gid;
        if (auto* object = as_object(node)) accounts_.update(*object);
    }
    if ((changes.what & kChangeMode) != 0 && node->kind != NodeKind::symlink) {
        node->mode = static_cast<uint16_t>(changes.mode);
        if (!who.is_root() && !who.in_group(node->gid)) node->mode &= static_cast<uint16_t>(~S_ISGID);
    }
    if ((changes.what & kChangeKeep) != 0) {
        if (auto* directory = as_directory(node)) directory->implicit = false;
        if (auto* object = as_object(node)) {
            forget_creator(object);
            object->flags |= kCreateKeep;
        }
    }
    node->changed_ns = clock_.now_ns();
    nodes_.changed(node);
    if ((changes.what & (kChangeMode | kChangeOwner)) != 0) rights_changed(*node);
    tree_.report(*node);
    return {};
}

}  // namespace gshm
