#include "store/tree.h"

#include <algorithm>
#include <cassert>
#include <sys/stat.h>

#include "base/name.h"
#include "store/acl.h"

namespace gshm::core {

bool is_permitted(const Node& node, const Credentials& who, unsigned rights) {
    if (who.is_root()) return true;
    unsigned granted = node.mode & 7u;
    if (who.uid == node.uid) granted = node.mode >> 6 & 7u;
    // As in the kernel: without rights of the group class, which limits all further entries, the ACL is not looked at.
    else if (node.acl && (node.mode & 070) != 0) return node.acl->permits(who, node.gid, rights);
    else if (who.in_group(node.gid)) granted = node.mode >> 3 & 7u;
    return (granted & rights) == rights;
}

bool gives_group(const Directory& directory) {
    return (directory.mode & S_ISGID) != 0;
}

namespace {

constexpr int kMaxFollowed = 40;  // as the kernel

// Directories have one name, and `who` knows it: the parts above it were searched.
std::unexpected<Error> denied(std::string_view what, const Directory& directory) {
    return fail(EACCES, "permission denied: {} \"{}\"", what, Tree::path_of(directory));
}

// As in the kernel with protected_symlinks, but also for links before the last part: where all users make entries, a
// link of another user may lead to what only the follower can write.
bool may_follow(const Credentials& who, const Directory& directory, const Node& link) {
    constexpr unsigned kLikeTmp = S_ISVTX | S_IWOTH;
    return (directory.mode & kLikeTmp) != kLikeTmp || link.uid == who.uid || link.uid == directory.uid;
}

// Every name below the node must be valid when the node has the name `path`.
Status check_depth_below(const Node& node, std::string_view path) {
    TRY(check_name(path));  // before the recursion, which it bounds: directories of the mount have any depth
    if (node.kind != NodeKind::directory) return {};
    uint64_t end = 0;
    for (const Link* child : static_cast<const Directory&>(node).order.after(0, SIZE_MAX, &end)) {
        TRY(check_depth_below(*child->node, std::string(path) + "/" + child->name));
    }
    return {};
}

// Of a directory, in Tree::reach(); "": all users may search it.
std::string restriction(uid_t uid, gid_t gid, uint32_t mode, const AclPointer& acl) {
    if (acl) return fmt::format("{}:{}:{:o}:{};", uid, gid, mode, acl->digest());
    return (mode & 0111) == 0111 ? std::string() : fmt::format("{}:{}:{:o};", uid, gid, mode);
}

}  // namespace

struct Tree::WayRights {
    gid_t group = 0;
    InheritedRights inherited;
};

bool Tree::is_inside(const Directory& directory, const Node& ancestor) {
    for (const Directory* at = &directory; at != nullptr; at = at->parent()) {
        if (at == &ancestor) return true;
    }
    return false;
}

Tree::Tree(const Clock& clock, const Credentials& root_owner, Nodes& nodes)
    : clock_(clock), nodes_(nodes), root_(nodes.make<Directory>()) {
    root_->mode = 01777;
    root_->uid = root_owner.uid;
    root_->gid = root_owner.gid;
    root_->links = 1;
    root_->created_ns = root_->accessed_ns = root_->modified_ns = root_->changed_ns = clock_.now_ns();
}

Result<Node*> Tree::walk(const Credentials& who, Directory* from, std::string_view path, Last last,
                         std::vector<Step>* ret_steps) const {
    Node* at = from;
    const Link* by = nullptr;  // the entry that led to `at`. Its other names may be hidden from `who`
    std::string followed;      // a link's target and the rest of the path; `rest` then points into it
    int times = 0;
    for (std::string_view rest = path; !rest.empty();) {
        std::string_view part = next_part(rest);
        auto* directory = as_directory(at);
        if (directory == nullptr) return fail(ENOTDIR, "\"{}\" is not a directory", path_of(*by));
        if (!is_permitted(*directory, who, kRightExecute)) return denied("search", *directory);
        if (ret_steps != nullptr) ret_steps->push_back({directory->id, std::string(part)});
        const Link* child = directory->children.find(part);
        if (child == nullptr) {
            // Only targets of symbolic links have such parts.
            if (part.empty() || part == ".") continue;
            if (part != "..") return fail(ENOENT, "no such object: \"{}\"", path);
            if (directory->parent() == nullptr) return fail(EXDEV, "\"{}\" leads out of gshm", path);
            at = directory->parent();
            continue;
        }
        if (child->node->kind != NodeKind::symlink || (rest.empty() && last == Last::keep)) {
            at = child->node;
            by = child;
            continue;
        }
        if (!may_follow(who, *directory, *child->node)) {
            return fail(EACCES,
                        "permission denied: follow \"{}\", a symbolic link of another user in a directory where all "
                        "users make entries",
                        path_of(*child));
        }
        if (++times > kMaxFollowed) return fail(ELOOP, "too many symbolic links on the way to \"{}\"", path);
        const std::string& target = static_cast<const Symlink*>(child->node)->target;
        if (target.starts_with('/')) return fail(EXDEV, "\"{}\" leads out of gshm, to {}", path, target);
        followed = rest.empty() ? target : target + "/" + std::string(rest);
        rest = followed;
        at = directory;
    }
    return at;
}

Result<Node*> Tree::find(const Credentials& who, std::string_view path, Last last, std::vector<Step>* ret_steps) const {
    return walk(who, root_, path, last, ret_steps);
}

void Tree::fetch(std::string_view path, bool node) const {
    const Directory* at = root_;
    for (std::string_view rest = path; at != nullptr;) {
        std::string_view part = next_part(rest);
        if (rest.empty()) return node ? at->children.fetch_node(part) : at->children.fetch_slot(part);
        Link* child = at->children.find(part);
        at = child == nullptr ? nullptr : as_directory(child->node);
    }
}

std::optional<DeviceIndex> Tree::device_of(const Credentials& who, std::string_view path) const {
    const Directory* at = root_;
    for (std::string_view rest = path; !rest.empty() && is_permitted(*at, who, kRightExecute);) {
        const Link* child = at->children.find(next_part(rest));
        const Directory* below = child == nullptr || rest.empty() ? nullptr : as_directory(child->node);
        if (below == nullptr) break;
        at = below;
    }
    return at->device;
}

bool Tree::has_way_to(const Credentials& who, const Node& node) {
    auto is_way = [&](const Link& link) {
        for (const Directory* at = link.parent; at != nullptr; at = at->parent()) {
            if (!is_permitted(*at, who, kRightExecute)) return false;
        }
        return link.parent != nullptr;
    };
    return is_way(node.first_link) ||
           std::ranges::any_of(node.further_links, [&](const auto& link) { return is_way(*link); });
}

Result<Tree::Spot> Tree::find_spot(const Credentials& who, std::string_view path) const {
    TRY(check_lookup_name(path));
    Spot spot{root_, path};
    for (;;) {
        if (!is_permitted(*spot.parent, who, kRightExecute)) return denied("search", *spot.parent);
        std::string_view rest = spot.rest;
        std::string_view part = next_part(rest);
        Link* child = spot.parent->children.find(part);
        if (rest.empty() || child == nullptr) return spot;
        auto* directory = as_directory(TRY(walk(who, spot.parent, part, Last::follow, nullptr)));
        if (directory == nullptr) return fail(ENOTDIR, "\"{}\" is not a directory", path_of(*child));
        spot = {directory, rest};
    }
}

Link* Tree::entry_at(const Spot& spot) {
    return spot.rest.find('/') == std::string_view::npos ? spot.parent->children.find(spot.rest) : nullptr;
}

Result<Tree::Spot> Tree::find_free(const Credentials& who, std::string_view path) const {
    TRY(check_name(path));
    Spot spot = TRY(find_spot(who, path));
    if (entry_at(spot) != nullptr) return fail(EEXIST, "\"{}\" exists already", path);
    if (!is_permitted(*spot.parent, who, kRightWrite)) return denied("write to", *spot.parent);
    return spot;
}

Result<Link*> Tree::find_removable(const Credentials& who, std::string_view path) const {
    Link* link = entry_at(TRY(find_spot(who, path)));
    if (link == nullptr) return fail(ENOENT, "no such object: \"{}\"", path);
    TRY(check_removable(who, *link));
    return link;
}

Result<Tree::Spot> Tree::find_target(const Credentials& who, const Node* node, const Link* link, std::string_view path,
                                     bool replace) const {
    if (link != nullptr) TRY(check_removable(who, *link));
    TRY(check_name(path));
    Spot spot = TRY(find_spot(who, path));
    if (node != nullptr && is_inside(*spot.parent, *node)) {
        return fail(EINVAL, "cannot move \"{}\" into itself", path_of(*node));
    }
    if (node != nullptr) TRY(check_depth_below(*node, path));
    const Link* old = entry_at(spot);
    if (old != nullptr && old != link) {
        if (!replace) return fail(EEXIST, "\"{}\" exists already", path);
        TRY(check_removable(who, *old));
    } else if (!is_permitted(*spot.parent, who, kRightWrite)) {
        return denied("write to", *spot.parent);
    }
    return spot;
}

Directory* Tree::make_way(const Credentials& who, const Spot& spot, std::string_view* ret_name) {
    Directory* at = spot.parent;
    std::string_view rest = spot.rest;
    for (;;) {
        std::string_view part = next_part(rest);
        if (rest.empty()) {
            *ret_name = part;
            return at;
        }
        WayRights rights = way_rights(who, at->gid, at->mode, at->default_acl);
        auto* made = nodes_.make<Directory>();
        made->mode = static_cast<uint16_t>(rights.inherited.mode);
        made->acl = std::move(rights.inherited.access);
        made->default_acl = std::move(rights.inherited.inherited);
        made->uid = who.uid;
        made->gid = rights.group;
        made->created_ns = made->accessed_ns = made->modified_ns = made->changed_ns = clock_.now_ns();
        made->implicit = true;
        made->device = at->device;
        insert(at, part, made);
        at = made;
    }
}

Tree::WayRights Tree::way_rights(const Credentials& who, gid_t group, uint32_t mode,
                                 const AclPointer& inherited) const {
    const bool gives = (mode & S_ISGID) != 0;
    WayRights rights{gives ? group : who.gid,
                     inherit_rights(nodes_.acls(), inherited, default_directory_mode(inherited), 0, true)};
    rights.inherited.mode |= mode & S_ISGID;
    return rights;
}

std::string Tree::reach_of_new(const Credentials& who, const Spot& spot) const {
    std::string text = reach(*spot.parent);
    // Without a default ACL all users may search the directories that are made.
    if (!spot.parent->default_acl) return text;
    gid_t group = spot.parent->gid;
    uint32_t mode = spot.parent->mode;
    std::string_view rest = spot.rest;
    for (next_part(rest); !rest.empty(); next_part(rest)) {
        const WayRights rights = way_rights(who, group, mode, spot.parent->default_acl);
        group = rights.group;
        mode = rights.inherited.mode;
        text = restriction(who.uid, group, mode, rights.inherited.access) + text;
    }
    return text;
}

Status Tree::check_removable(const Credentials& who, const Link& link) const {
    const Directory& parent = *link.parent;
    if (!is_permitted(parent, who, kRightWrite | kRightExecute)) return denied("write to", parent);
    bool sticky = (parent.mode & S_ISVTX) != 0;
    if (sticky && !who.is_root() && who.uid != link.node->uid && who.uid != parent.uid) {
        return fail(EPERM, "\"{}\" belongs to another user, and only its owner may remove it there", path_of(link));
    }
    return {};
}

void Tree::detach(Node* node) {
    while (node->links > 0) {
        auto* link = const_cast<Link*>(node->any_link());
        Directory* parent = link->parent;
        remove(link);
        prune(parent);
    }
}

void Tree::hook(Link* link, Directory* parent, std::string_view name, uint64_t cookie) {
    link->name = name;
    link->parent = parent;
    if (cookie == 0) cookie = parent->order.add(link);
    else parent->order.put(cookie, link);
    link->cookie = cookie;
    parent->children.insert(link);
    if (link->node->kind == NodeKind::directory) ++parent->subdirectories;
    touch(parent);
    ++link->node->links;
    link->node->changed_ns = parent->changed_ns;
    nodes_.changed(link->node);
    if (observer_ != nullptr) observer_->entry_added(*parent, name);
}

// The link keeps its name and its parent, which exchange() needs.
void Tree::unhook(Link* link) {
    Directory* parent = link->parent;
    parent->children.erase(link);
    parent->order.remove(link->cookie);
    if (link->node->kind == NodeKind::directory) --parent->subdirectories;
    touch(parent);
    --link->node->links;
    link->node->changed_ns = parent->changed_ns;
    nodes_.changed(link->node);
    if (observer_ != nullptr) {
        observer_->entry_removed(*parent, link->name, *link->node);
        observer_->node_changed(*link->node);
    }
}

void Tree::remove(Link* link, Removal why) {
    Node* node = link->node;
    tell([&](NameListener& listener) {
        switch (why) {
            case Removal::plain: return listener.removing(*link);
            case Removal::expired: return listener.expiring(*link);
            case Removal::replaced: return listener.replacing(*link);
        }
    });
    // Holders of the object are told its former path.
    std::string last;
    auto* object = as_object(node);
    if (object != nullptr && object->links == 1 && (object->leases > 0 || object->is_referenced()))
        last = path_of(*object);
    unhook(link);
    node->drop_link(link);
    if (!last.empty()) node->first_link.name = std::move(last);
}

void Tree::move(Link* link, Directory* parent, std::string_view name, uint64_t cookie) {
    std::string kept(name);  // `name` may refer to the link's own
    tell([&](NameListener& listener) { listener.moving(*link, *parent, kept); });
    // A listing under way has the file once, by its old or its new name.
    if (cookie == 0 && link->parent == parent) cookie = link->cookie;
    unhook(link);
    hook(link, parent, kept, cookie);
    tell([&](NameListener& listener) { listener.moved(*link); });
}

void Tree::exchange(Link* a, Link* b) {
    tell([&](NameListener& listener) { listener.exchanging(*a, *b); });
    unhook(a);
    unhook(b);
    std::string name = a->name;
    Directory* parent = a->parent;
    const uint64_t cookie = a->cookie;
    hook(a, b->parent, std::string(b->name), b->cookie);
    hook(b, parent, name, cookie);
    tell([&](NameListener& listener) { listener.exchanged(*a, *b); });
}

void Tree::touch(Directory* directory) {
    directory->modified_ns = directory->changed_ns = clock_.now_ns();
    nodes_.changed(directory);
}

void Tree::prune(Directory* directory) {
    while (directory->implicit && directory->children.empty() && directory->parent() != nullptr) {
        Directory* parent = directory->parent();
        remove(&directory->first_link);
        // Otherwise it is erased when the kernel has forgotten it.
        if (!directory->is_referenced()) nodes_.erase(directory);
        directory = parent;
    }
}

std::string Tree::reach(const Directory& directory) {
    std::string text;
    for (const Directory* at = &directory; at != nullptr; at = at->parent()) {
        text += restriction(at->uid, at->gid, at->mode, at->acl);
    }
    return text;
}

std::string Tree::path_of(const Node& node) {
    std::string path;
    for (const Link* at = node.any_link(); at != nullptr; at = at->parent->any_link()) {
        path = path.empty() ? at->name : at->name + "/" + path;
    }
    return path.empty() ? "/" : path;
}

std::string Tree::path_of(const Link& link) {
    return link.parent->parent() == nullptr ? link.name : path_of(*link.parent) + "/" + link.name;
}

}  // namespace gshm::core
