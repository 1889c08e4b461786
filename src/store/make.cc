// Directories, symbolic links, hard links, and changes of owner and mode.
#include <sys/stat.h>

#include "base/limits.h"
#include "base/name.h"
#include "store/account_limits.h"
#include "store/acl.h"
#include "store/lifetimes.h"
#include "store/store.h"

namespace gshm::core {
namespace {

Status check_make(const Credentials& who, const MakeSpec& spec, size_t device_count) {
    if ((spec.flags & ~uint32_t{kCreateKeep | kCreateOwner}) != 0)
        return fail(EINVAL, "unknown make flags {:#x}", spec.flags);
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
    const Tree::Spot spot = TRY(tree_.find_free(who, spec.name));
    std::string_view name;
    Directory* parent = tree_.make_way(who, spot, &name);
    const bool for_other = (spec.flags & kCreateOwner) != 0;
    const uint32_t default_mode = for_other ? 0755 : default_directory_mode(parent->default_acl);
    const Maker maker{for_other ? spec.uid : who.uid, for_other ? spec.gid : who.gid,
                      spec.mode == 0 ? default_mode : spec.mode, for_other};
    if (spec.kind == NodeKind::symlink) {
        TRY(operations_.make_symlink(*parent, name, maker, spec.target));
        return {};
    }
    Directory* directory = TRY(operations_.make_directory(*parent, name, maker));
    if (spec.device) directory->device = spec.device;
    directory->implicit = (spec.flags & kCreateKeep) == 0;
    return {};
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
    // As in the kernel with protected_hardlinks: a user links only own nodes, and objects that the user may read and
    // write.
    bool plain = node->kind == NodeKind::object && (node->mode & (S_ISUID | S_ISGID)) == 0;
    bool usable = plain && is_permitted(*node, who, kRightRead | kRightWrite);
    if (!who.is_root() && who.uid != node->uid && !usable) {
        return fail(EPERM, "\"{}\" belongs to another user, and you may not write to it", name);
    }
    const Tree::Spot spot = TRY(tree_.find_free(who, new_name));
    TRY(limits_->check_way(*node, spot));
    std::string_view last;
    Directory* parent = tree_.make_way(who, spot, &last);
    return operations_.link(*node, *parent, last);
}

Status Store::change(SessionId session, std::string_view name, const ChangeSpec& changes) {
    const Credentials& who = at(session).who;
    constexpr uint32_t kOfLifetime = kChangeTtl | kChangePin | kChangeUnpin;
    if ((changes.what & kOfLifetime) != 0) return change_lifetime(session, name, changes);
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
    NodeChanges wanted;
    if ((changes.what & kChangeOwner) != 0) {
        look_again(*node);
        TRY(limits_->check_owner(*node, changes.uid, changes.gid));
        wanted.uid = changes.uid;
        wanted.gid = changes.gid;
        wanted.mode = Operations::mode_for_new_owner(*node);
    }
    if ((changes.what & kChangeMode) != 0 && node->kind != NodeKind::symlink) {
        wanted.mode = changes.mode;
        if (!who.is_root() && !who.in_group(node->gid)) *wanted.mode &= ~static_cast<uint32_t>(S_ISGID);
    }
    wanted.keep = (changes.what & kChangeKeep) != 0;
    operations_.change(*node, wanted);
    return {};
}

Status Store::change_lifetime(SessionId session, std::string_view name, const ChangeSpec& changes) {
    const Session& by = at(session);
    Object* object = TRY(find_object(by, name));
    switch (changes.what) {
        case kChangeTtl:
            if (!by.who.is_root() && by.who.uid != object->uid) {
                return fail(EPERM, "only its owner and root may set the ttl of \"{}\"", name);
            }
            TRY(Lifetimes::check_ttl(changes.ttl_ns));
            lifetimes_->set_ttl(*object, changes.ttl_ns, changes.ttl_unused);
            break;
        case kChangePin: TRY(lifetimes_->pin(*object, by.who)); break;
        case kChangeUnpin: TRY(lifetimes_->unpin(*object, by.who)); break;
        default: return fail(EINVAL, "a change of the lifetime comes alone, not with {:#x}", changes.what);
    }
    operations_.change(*object, {});
    return {};
}

}  // namespace gshm::core
