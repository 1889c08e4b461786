// ACLs of objects and directories, for the library's requests.
#include <algorithm>

#include "base/name.h"
#include "store/acl.h"
#include "store/store.h"

namespace gshm::core {
namespace {

bool is_same(const AclEntry& a, const AclEntry& b) {
    return a.tag == b.tag && a.id == b.id;
}

const AclPointer* pointer(const Node& node, AclKind kind) {
    if (kind == AclKind::access) return &node.acl;
    return node.kind == NodeKind::directory ? &static_cast<const Directory&>(node).default_acl : nullptr;
}

AclEntries entries_of(const Node& node, AclKind kind) {
    const AclPointer* acl = pointer(node, kind);
    if (acl != nullptr && *acl) return (*acl)->entries();
    return kind == AclKind::access ? acl_of_mode(node.mode) : AclEntries{};
}

}  // namespace

Result<Node*> Store::find_with_acl(const Session& session, std::string_view name) const {
    if (!name.empty()) TRY(check_lookup_name(name));
    return tree_.find(session.who, name, Tree::Last::follow);
}

Result<std::vector<AclEntry>> Store::acl(SessionId session, std::string_view name, AclKind kind) const {
    return entries_of(*TRY(find_with_acl(at(session), name)), kind);
}

Status Store::change_acl(SessionId session, std::string_view name, AclKind kind, AclChange change,
                         std::vector<AclEntry> entries) {
    const Credentials& who = at(session).who;
    Node* node = TRY(find_with_acl(at(session), name));
    if (!who.is_root() && who.uid != node->uid) {
        return fail(EPERM, "only its owner and root may share \"{}\"", name);
    }
    if (change != AclChange::replace) {
        AclEntries before = entries_of(*node, kind);
        const bool none = before.empty();
        const bool had_names = !is_mode_only(before);
        // The mask is made anew from what is left.
        std::erase_if(before, [&](const AclEntry& old) {
            if (old.tag == AclTag::mask) return true;
            return std::ranges::any_of(entries, [&](const AclEntry& entry) { return is_same(old, entry); });
        });
        if (change == AclChange::add) before.insert(before.end(), entries.begin(), entries.end());
        else if (none) return {};
        entries = std::move(before);
        // The last user has gone, and with it the reason for the rest.
        if (kind == AclKind::inherited && change == AclChange::remove && had_names && is_mode_only(entries)) {
            entries.clear();
        }
    }
    // The mask, which the mode shows as the rights of the group, goes with the ACL.
    if (change == AclChange::replace && entries.empty() && kind == AclKind::access) {
        entries = entries_of(*node, kind);
        std::erase_if(entries, [](const AclEntry& entry) {
            return entry.tag == AclTag::user || entry.tag == AclTag::group || entry.tag == AclTag::mask;
        });
    }
    // A default ACL that is begun with a share of the directory keeps new objects as private as without it. Others may
    // go on to search new directories.
    const bool begins = kind == AclKind::inherited && change == AclChange::add;
    entries = TRY(complete_acl(std::move(entries), begins ? 0700 | (node->mode & 011u) : node->mode));
    const bool drops = !who.is_root() && !who.in_group(node->gid);
    return operations_.set_acl(*node, kind, std::move(entries), drops);
}

}  // namespace gshm::core
