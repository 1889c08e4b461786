#include "store/tree.h"

#include <cassert>
#include <sys/stat.h>

#include "base/name.h"

namespace gshm {

bool is_permitted(const Node& node, const Credentials& who, unsigned rights) {
    if (who.is_root()) return true;
    unsigned granted = node.mode & 7u;
    if (who.uid == node.uid) granted = node.mode >> 6 & 7u;
    else if (who.in_group(node.gid)) granted = node.mode >> 3 & 7u;
    return (granted & rights) == rights;
}

namespace {

Directory* as_directory(Node* node) {
    return node->kind == NodeKind::directory ? static_cast<Directory*>(node) : nullptr;
}

std::unexpected<Error> denied(std::string_view what, const Node& node) {
    return fail(EACCES, "permission denied: {} \"{}\"", what, Tree::path_of(node));
}

// Every name below the node must stay one that can be spoken of when the node itself is called `path`.
Status check_depth_below(const Node& node, std::string_view path) {
    if (node.kind == NodeKind::object) return check_name(path);
    uint64_t end = 0;
    for (const Node* child : static_cast<const Directory&>(node).order.after(0, SIZE_MAX, &end)) {
        TRY(check_depth_below(*child, std::string(path) + "/" + child->name));
    }
    return {};
}

bool is_inside(const Node& node, const Directory& ancestor) {
    for (const Node* at = &node; at != nullptr; at = at->parent) {
        if (at == &ancestor) return true;
    }
    return false;
}

}  // namespace

Tree::Tree(const Clock& clock, const Credentials& root_owner, std::function<NodeId()> next_id)
    : clock_(clock), next_id_(std::move(next_id)), root_(std::make_unique<Directory>(next_id_())) {
    root_->mode = 01777;
    root_->uid = root_owner.uid;
    root_->gid = root_owner.gid;
    root_->created_ns = root_->modified_ns = clock_.now_ns();
}

Result<Node*> Tree::find(const Credentials& who, std::string_view path) const {
    Node* at = root_.get();
    for (std::string_view rest = path; !rest.empty();) {
        std::string_view part = next_part(rest);
        auto* directory = as_directory(at);
        if (directory == nullptr) return fail(ENOTDIR, "\"{}\" is not a directory", path_of(*at));
        if (!is_permitted(*directory, who, kRightExecute)) return denied("search", *directory);
        at = directory->children.find(part);
        if (at == nullptr) return fail(ENOENT, "no such object: \"{}\"", path);
    }
    return at;
}

void Tree::fetch(std::string_view path, bool node) const {
    const Directory* at = root_.get();
    for (std::string_view rest = path; at != nullptr;) {
        std::string_view part = next_part(rest);
        if (rest.empty()) return node ? at->children.fetch_node(part) : at->children.fetch_slot(part);
        Node* child = at->children.find(part);
        at = child == nullptr ? nullptr : as_directory(child);
    }
}

Status Tree::check_way_to(const Credentials& who, const Node& node) const {
    if (node.parent == nullptr) return fail(ENOENT, "the object has no name any more");
    for (const Directory* at = node.parent; at != nullptr; at = at->parent) {
        if (!is_permitted(*at, who, kRightExecute)) return denied("search", *at);
    }
    return {};
}

Result<Tree::Spot> Tree::find_spot(const Credentials& who, std::string_view path) const {
    TRY(check_name(path));
    Spot spot{root_.get(), path};
    for (;;) {
        if (!is_permitted(*spot.parent, who, kRightExecute)) return denied("search", *spot.parent);
        std::string_view rest = spot.rest;
        std::string_view part = next_part(rest);
        Node* child = spot.parent->children.find(part);
        if (rest.empty() || child == nullptr) return spot;
        auto* directory = as_directory(child);
        if (directory == nullptr) return fail(ENOTDIR, "\"{}\" is not a directory", path_of(*child));
        spot = {directory, rest};
    }
}

Status Tree::check_link(const Credentials& who, std::string_view path, std::string* ret_reach) const {
    Spot spot = TRY(find_spot(who, path));
    if (spot.rest.find('/') == std::string_view::npos && spot.parent->children.find(spot.rest) != nullptr) {
        return fail(EEXIST, "\"{}\" exists already", path);
    }
    if (!is_permitted(*spot.parent, who, kRightWrite)) return denied("write to", *spot.parent);
    // Directories that are yet to be made are open to all, and change nothing.
    if (ret_reach != nullptr) *ret_reach = reach(*spot.parent);
    return {};
}

Status Tree::link(const Credentials& who, std::string_view path, Node* node) {
    assert(node->parent == nullptr);
    TRY(check_link(who, path, nullptr));
    std::string_view name;
    Directory* parent = make_directories(who, TRY(find_spot(who, path)), &name);
    insert(parent, name, node);
    return {};
}

Directory* Tree::make_directories(const Credentials& who, const Spot& spot, std::string_view* ret_name) {
    Directory* at = spot.parent;
    std::string_view rest = spot.rest;
    for (;;) {
        std::string_view part = next_part(rest);
        if (rest.empty()) {
            *ret_name = part;
            return at;
        }
        auto made = std::make_unique<Directory>(next_id_());
        made->mode = 0755;
        made->uid = who.uid;
        made->gid = who.gid;
        made->created_ns = made->modified_ns = clock_.now_ns();
        made->implicit = true;
        auto* directory = made.get();
        directories_.emplace(directory->id, std::move(made));
        insert(at, part, directory);
        at = directory;
    }
}

Status Tree::check_removable(const Credentials& who, const Node& node) const {
    const Directory& parent = *node.parent;
    if (!is_permitted(parent, who, kRightWrite | kRightExecute)) return denied("write to", parent);
    bool sticky = (parent.mode & S_ISVTX) != 0;
    if (sticky && !who.is_root() && who.uid != node.uid && who.uid != parent.uid) {
        return fail(EPERM, "\"{}\" belongs to another user, and only its owner may remove it there", path_of(node));
    }
    return {};
}

Result<Node*> Tree::unlink(const Credentials& who, std::string_view path) {
    TRY(check_name(path));
    Node* node = TRY(find(who, path));
    if (node->kind == NodeKind::directory) return fail(EISDIR, "\"{}\" is a directory", path);
    TRY(check_removable(who, *node));
    detach(node);
    return node;
}

void Tree::detach(Node* node) {
    if (node->parent == nullptr) return;
    Directory* parent = node->parent;
    remove(node);
    prune(parent);
}

Result<Node*> Tree::rename(const Credentials& who, std::string_view from, std::string_view to, bool replace) {
    TRY(check_name(from));
    Node* node = TRY(find(who, from));
    TRY(check_removable(who, *node));
    Spot spot = TRY(find_spot(who, to));
    if (auto* directory = as_directory(node); directory != nullptr && is_inside(*spot.parent, *directory)) {
        return fail(EINVAL, "cannot move \"{}\" into itself", from);
    }
    TRY(check_depth_below(*node, to));
    Node* old = nullptr;
    if (spot.rest.find('/') == std::string_view::npos) old = spot.parent->children.find(spot.rest);
    if (old == node) return nullptr;
    if (old != nullptr) {
        if (!replace) return fail(EEXIST, "\"{}\" exists already", to);
        if (old->kind == NodeKind::directory) return fail(EISDIR, "\"{}\" is a directory", to);
        if (node->kind == NodeKind::directory) return fail(ENOTDIR, "\"{}\" is not a directory", to);
        TRY(check_removable(who, *old));
        remove(old);
    } else if (!is_permitted(*spot.parent, who, kRightWrite)) {
        return denied("write to", *spot.parent);
    }
    Directory* source = node->parent;
    remove(node);
    std::string_view name;
    Directory* parent = make_directories(who, spot, &name);
    insert(parent, name, node);
    prune(source);
    return old;
}

void Tree::insert(Directory* parent, std::string_view name, Node* node) {
    node->name = name;
    node->parent = parent;
    node->cookie = parent->order.add(node);
    parent->children.insert(node);
    parent->modified_ns = clock_.now_ns();
}

void Tree::remove(Node* node) {
    Directory* parent = node->parent;
    parent->children.erase(node);
    parent->order.remove(node->cookie);
    node->parent = nullptr;
    parent->modified_ns = clock_.now_ns();
}

void Tree::prune(Directory* directory) {
    while (directory->implicit && directory->children.empty() && directory->parent != nullptr) {
        Directory* parent = directory->parent;
        remove(directory);
        directories_.erase(directory->id);
        directory = parent;
    }
}

std::string Tree::reach(const Directory& directory) {
    std::string text;
    for (const Directory* at = &directory; at != nullptr; at = at->parent) {
        if ((at->mode & 0111) != 0111) text += fmt::format("{}:{}:{:o};", at->uid, at->gid, at->mode);
    }
    return text;
}

std::string Tree::path_of(const Node& node) {
    std::string path;
    for (const Node* at = &node; at->parent != nullptr; at = at->parent) {
        path = path.empty() ? at->name : at->name + "/" + path;
    }
    return path.empty() ? "/" : path;
}

}  // namespace gshm
