// What a name stands for: a directory, an object with its place in an extent, or one of the small things that a file
// system has besides.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "store/accounts.h"
#include "store/name_table.h"
#include "store/numbers.h"
#include "store/recorder.h"

namespace gshm::core {

using NodeId = uint64_t;
using ExtentId = uint64_t;
using SessionId = uint64_t;
using DeviceIndex = uint32_t;

using Attributes = std::map<std::string, std::string, std::less<>>;

// Values as in gshm.h: tests/unit/store/public_values_test.cc compares these and all others that are so marked.
enum class NodeKind : uint8_t { object = 1, directory = 2, symlink = 3, special = 4 };
enum class ObjectState : uint8_t { open = 1, sealed = 2 };

class Extent;
struct Gate;
struct Node;
struct Directory;
struct StoredExtent;

// What a part that speaks of nodes by their ids, as the mount does with the kernel, keeps with a node.
struct NodeReference {
    virtual ~NodeReference() = default;
    // The node must be found by its id, also when it has no name any more.
    virtual bool is_held() const = 0;
};

// One name of a node.
struct Link {
    explicit Link(Node* owner) : node(owner) {}

    std::string name;
    Node* node;
    Directory* parent = nullptr;  // null: not in use
    uint64_t cookie = 0;          // position in the parent's order
};

struct Node {
    Node(NodeKind node_kind, NodeId node_id) : first_link(this), id(node_id), kind(node_kind) {}
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // What a lookup reads stands first.
    Link first_link;  // of an object that is held but has no name any more: its name is the whole path that it had
    NodeId id;
    NodeKind kind;
    bool unrecorded = false;  // changed since it was last written down; see Nodes::changed()
    uint16_t mode = 0;  // 07777; what kind of file it is follows from `kind`
    uid_t uid = 0;
    gid_t gid = 0;
    uint32_t links = 0;    // names; of a directory 1 at most
    std::unique_ptr<NodeReference> reference;  // the mount's; null: none
    int64_t created_ns = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    std::unique_ptr<Attributes> attributes;               // null: none
    std::vector<std::unique_ptr<Link>> further_links;  // hard links
    uint64_t row_sum = 0;  // the checksum of what is written down of it; 0: nothing is

    bool is_referenced() const { return reference != nullptr && reference->is_held(); }
    // One that is not in use yet.
    Link* new_link();
    // Puts one out of use.
    void drop_link(Link* link);
    // Any one in use; null: it has no name.
    const Link* any_link() const;
};

// A range of an extent.
struct Place {
    StoredExtent* extent = nullptr;
    uint64_t offset = 0;
};

struct Object final : Node {
    explicit Object(NodeId node_id) : Node(NodeKind::object, node_id) {}

    ObjectState state = ObjectState::open;
    uint32_t flags = 0;           // CreateFlag
    // Leases of sessions, of files open in the mount, of threads at work. Atomic: threads that share the store add and
    // drop leases beside each other (shared.cc).
    std::atomic<uint32_t> leases = 0;
    std::atomic<uint32_t> write_leases = 0;
    std::atomic<uint32_t> session_leases = 0;  // of `leases`
    uint32_t open_files = 0;      // of `leases`: in the mount
    uint32_t write_opens = 0;     // how often it was opened for writing, by sessions and in the mount
    DeviceIndex device = 0;
    uint64_t size_bytes = 0;      // of a file (Extent::file()): when it was last looked at
    StoredExtent* extent = nullptr;  // null: no memory, and no bytes
    uint64_t offset = 0;
    int64_t file_modified_ns = 0;  // of a file: the kernel's time when it was last looked at
    int64_t file_accessed_ns = 0;
    bool replaced = false;         // its last name is another's now
    bool awaited = false;          // without a name, and waited for in vain: a process has it open
    std::shared_ptr<Gate> gate;  // null: nobody has asked for it yet
    // Memory that it had before, for the sessions that still map it.
    struct Retired {
        Place place;
        uint64_t size_bytes;
    };
    std::unique_ptr<std::vector<Retired>> retired;
    AccountedShares accounted;  // see Accounts
    std::shared_ptr<void> daemon_state;  // what the daemon has for it, for as long as it is there
    // The session it is reclaimed with, and its neighbours in that session's list of such; 0: none, or sealed.
    SessionId creator = 0;
    Object* next_unsealed = nullptr;
    Object* previous_unsealed = nullptr;
};

struct Symlink final : Node {
    Symlink(NodeId node_id, std::string_view to) : Node(NodeKind::symlink, node_id), target(to) {}
    std::string target;
};

// A pipe, socket or device file: the kernel does the rest.
struct Special final : Node {
    Special(NodeId node_id, uint32_t file_type, uint32_t device_number)
        : Node(NodeKind::special, node_id), type(file_type), number(device_number) {}
    uint32_t type;  // S_IFIFO, ...
    uint32_t number;
};

// A hint that the node will be read soon.
void fetch(const Link* first_link);

// Entries in the order they were made, each with a cookie: a listing that goes on at a cookie neither misses nor repeats
// one, whatever is created and removed meanwhile. One vector, since listings read it from end to end.
class EntryOrder {
public:
    // Returns the cookie, never 0.
    uint64_t add(Link* link);
    // With the cookie that it has; in the order of the cookies.
    void restore(Link* link);
    void remove(uint64_t cookie);
    uint64_t next_cookie() const { return next_cookie_; }
    // The entries after a cookie, `most` of them. Sets ret_cookie to where to go on; 0: there are no more.
    std::vector<const Link*> after(uint64_t cookie, size_t most, uint64_t* ret_cookie) const;

private:
    struct Entry {
        uint64_t cookie;
        Link* link;  // null: removed
    };
    std::vector<Entry>::const_iterator find(uint64_t cookie) const;

    std::vector<Entry> entries_;  // by cookie
    size_t removed_ = 0;
    uint64_t next_cookie_ = 1;
};

struct Directory final : Node {
    explicit Directory(NodeId node_id) : Node(NodeKind::directory, node_id) {}

    Directory* parent() const { return first_link.parent; }

    NameTable children;
    EntryOrder order;
    uint32_t subdirectories = 0;
    std::optional<DeviceIndex> device;  // for what is made in it; copied to directories that are made in it
    bool implicit = false;  // made on an object's way, and gone with the last entry
};

// All nodes, by id.
class Nodes {
public:
    template <typename Kind, typename... Args>
    Kind* make(Args&&... args) {
        auto made = std::make_unique<Kind>(ids_.take(), std::forward<Args>(args)...);
        return insert(std::move(made));
    }
    // One that was there before, under the id that it had then. Null: there is one with that id.
    template <typename Kind, typename... Args>
    Kind* restore(NodeId id, Args&&... args) {
        if (nodes_.contains(id)) return nullptr;
        ids_.skip_to(id + 1);
        return insert(std::make_unique<Kind>(id, std::forward<Args>(args)...));
    }
    // Everything that must outlive the process and was changed is to be reported here, before anyone is told.
    void changed(Node* node) {
        if (node->unrecorded || recorder_ == nullptr) return;
        node->unrecorded = true;
        recorder_->changed(*node);
    }
    void set_recorder(Recorder* recorder) { recorder_ = recorder; }
    Node* find(NodeId id) const {
        auto found = nodes_.find(id);
        return found == nodes_.end() ? nullptr : found->second.get();
    }
    void erase(Node* node) {
        if (node->kind == NodeKind::object) --objects_;
        if (recorder_ != nullptr) recorder_->erased(*node);
        nodes_.erase(node->id);
    }
    std::vector<Node*> all() const {
        std::vector<Node*> nodes;
        for (const auto& [id, node] : nodes_) nodes.push_back(node.get());
        return nodes;
    }
    size_t count() const { return nodes_.size(); }
    size_t object_count() const { return objects_; }
    void set_ledger(Ledger* ledger) { ids_.use(ledger, Numbered::node); }

private:
    friend class Restorer;
    template <typename Kind>
    Kind* insert(std::unique_ptr<Kind> made) {
        auto* node = made.get();
        nodes_.emplace(node->id, std::move(made));
        if (node->kind == NodeKind::object) ++objects_;
        changed(node);
        return node;
    }

    Numbers ids_;
    size_t objects_ = 0;
    Recorder* recorder_ = nullptr;
    std::unordered_map<NodeId, std::unique_ptr<Node>> nodes_;
};

inline Directory* as_directory(Node* node) {
    return node->kind == NodeKind::directory ? static_cast<Directory*>(node) : nullptr;
}
inline Object* as_object(Node* node) {
    return node->kind == NodeKind::object ? static_cast<Object*>(node) : nullptr;
}

}  // namespace gshm::core
