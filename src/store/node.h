// Nodes: directories, objects with their places in extents, symbolic links and special files.
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

#include "base/budgets.h"
#include "base/limits.h"
#include "store/accounts.h"
#include "store/acl_pointer.h"
#include "store/counts.h"
#include "store/name_table.h"
#include "store/numbers.h"
#include "store/recorder.h"

namespace gshm::core {

using NodeId = uint64_t;
using ExtentId = uint64_t;
using SessionId = uint64_t;
using DeviceIndex = uint32_t;

using Attributes = std::map<std::string, std::string, std::less<>>;
size_t bytes_of(const Attributes& attributes);

// Values as in gshm.h: tests/unit/store/public_values_test.cc compares all enums with this mark.
enum class NodeKind : uint8_t { object = 1, directory = 2, symlink = 3, special = 4 };
enum class ObjectState : uint8_t { open = 1, sealed = 2 };

class Extent;
struct Gate;
struct Lifetime;
struct Node;
struct Directory;
struct StoredExtent;
struct TreeAccount;  // account_limits.h: of a directory with limits
struct TreeAccountDeleter {
    void operator()(TreeAccount* account) const;
};

struct DeleteLifetime {
    void operator()(Lifetime* lifetime) const;
};

// State, kept with a node, of a part that refers to nodes by their ids, as the mount does towards the kernel.
struct NodeReference {
    virtual ~NodeReference() = default;
    // The node must be found by its id, even without a name.
    virtual bool is_held() const = 0;
};

// A directory entry: one name of a node.
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

    // Members that a lookup reads come first.
    Link first_link;  // of a held object without a name: `name` is its former path
    NodeId id;
    NodeKind kind;
    bool unrecorded = false;  // changed since it was last recorded; see Nodes::changed()
    uint16_t mode = 0;        // 07777; the file type follows from `kind`
    uid_t uid = 0;
    gid_t gid = 0;
    uint32_t links = 0;                        // number of names; of a directory at most 1
    AclPointer acl;                            // null: the mode says all
    std::unique_ptr<NodeReference> reference;  // the mount's; null: none
    int64_t created_ns = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    std::unique_ptr<Attributes> attributes;            // null: none
    std::vector<std::unique_ptr<Link>> further_links;  // hard links
    uint64_t row_sum = 0;                              // the checksum of its row in the catalog; 0: no row
    uint32_t attribute_bytes = 0;                      // names and values
    uint32_t counted_bytes = 0;                        // in the budget of counted_uid; see Nodes
    uid_t counted_uid = 0;

    // Its bytes in the catalog, roughly.
    uint64_t name_bytes() const;
    bool is_referenced() const { return reference != nullptr && reference->is_held(); }
    // An unused link.
    Link* new_link();
    // The link becomes unused.
    void drop_link(Link* link);
    // Any link in use; null: the node has no name.
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
    uint32_t flags = 0;  // CreateFlag
    // Leases of sessions, of files open in the mount, and of threads at work. Atomic: threads that hold the store lock
    // shared add and drop leases concurrently (shared.cc).
    std::atomic<uint32_t> leases = 0;
    std::atomic<uint32_t> write_leases = 0;
    std::atomic<uint32_t> session_leases = 0;  // of `leases`
    uint32_t open_files = 0;                   // of `leases`: in the mount
    uint32_t write_opens = 0;                  // number of opens for writing, by sessions and in the mount
    // The last use, a few milliseconds behind: its creation, the last open by a session or in the mount, or the end of
    // its last lease. Moves are no uses. Atomic as `leases`.
    std::atomic<int64_t> used_ns = 0;
    DeviceIndex device = 0;          // of its memory
    uint32_t evicted_from = 0;       // 1 + the device that it belongs to, while a tier has it; 0: it is on that device
    uint64_t size_bytes = 0;         // of a file (Extent::file()): as of the last refresh
    StoredExtent* extent = nullptr;  // null: no memory, and no bytes
    uint64_t offset = 0;
    int64_t file_modified_ns = 0;  // of a file: the kernel's time as of the last refresh
    int64_t file_accessed_ns = 0;
    uint64_t stored = 0;    // the number of its file in the folder of a tier, which has its bytes; 0: none
    bool replaced = false;  // another node has got its last name
    ReclaimReason reclaim = ReclaimReason::unlinked;
    bool awaited = false;        // without a name, and still open after Departures has waited for it
    uint16_t queued_on = 0;      // 1 + the device whose queue it is in; see Evictables
    std::shared_ptr<Gate> gate;  // null: not used yet
    // Former memory, for the sessions that still map it.
    struct Retired {
        Place place;
        uint64_t size_bytes;
    };
    std::unique_ptr<std::vector<Retired>> retired;
    AccountedShares accounted;  // see Accounts
    // Its ttl, or the pin of its owner; null: neither. See lifetimes.h.
    std::unique_ptr<Lifetime, DeleteLifetime> lifetime;
    std::shared_ptr<void> daemon_state;  // the daemon's state for the object, destroyed with it
    // The session that it is reclaimed with, and its neighbours in that session's list. 0: none, or sealed and not
    // ephemeral.
    SessionId creator = 0;
    Object* next_unsealed = nullptr;
    Object* previous_unsealed = nullptr;

    bool is_evicted() const { return evicted_from != 0; }
    // The device that it belongs to.
    DeviceIndex home() const { return is_evicted() ? evicted_from - 1 : device; }
};

struct Symlink final : Node {
    Symlink(NodeId node_id, std::string_view to) : Node(NodeKind::symlink, node_id), target(to) {}
    std::string target;
};

// A pipe, socket or device file, which the kernel implements.
struct Special final : Node {
    Special(NodeId node_id, uint32_t file_type, uint32_t device_number)
        : Node(NodeKind::special, node_id), type(file_type), number(device_number) {}
    uint32_t type;  // S_IFIFO, ...
    uint32_t number;
};

// Prefetches the node.
void fetch(const Link* first_link);

// Entries in the order of their creation, each with a cookie. A listing that continues at a cookie neither skips nor
// repeats an entry, even if others are created and removed meanwhile. A name that is given to another node, and a node
// that is renamed in its directory, keep their cookie. One vector, since listings read it sequentially.
class EntryOrder {
public:
    // Returns the cookie, never 0.
    uint64_t add(Link* link);
    // Adds a link with the cookie of a removed one.
    void put(uint64_t cookie, Link* link);
    // Adds a link that has its cookie already. Called in the order of the cookies.
    void restore(Link* link);
    void remove(uint64_t cookie);
    uint64_t next_cookie() const { return next_cookie_; }
    // At most `most` entries after a cookie. Sets ret_cookie to the cookie to continue at; 0: no more entries.
    std::vector<const Link*> after(uint64_t cookie, size_t most, uint64_t* ret_cookie) const;
    // At most `most` entries before a cookie, the last one first. A listing in this order does not reach entries that
    // are added meanwhile.
    std::vector<const Link*> before(uint64_t cookie, size_t most) const;

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
    std::optional<DeviceIndex> device;  // for new objects; copied to new subdirectories
    bool implicit = false;              // created for an object's path, and removed with its last entry
    std::unique_ptr<TreeAccount, TreeAccountDeleter> account;  // null: it has no limits
    AclPointer default_acl;                                    // of new entries; null: none
};

// All nodes, by id.
class Nodes {
public:
    explicit Nodes(Budgets& budgets) : budgets_(budgets) {}
    template <typename Kind, typename... Args>
    Kind* make(Args&&... args) {
        auto made = std::make_unique<Kind>(ids_.take(), std::forward<Args>(args)...);
        return insert(std::move(made));
    }
    // Restores a node of an earlier daemon under its id. Null: the id exists.
    template <typename Kind, typename... Args>
    Kind* restore(NodeId id, Args&&... args) {
        if (nodes_.contains(id)) return nullptr;
        ids_.skip_to(id + 1);
        return insert(std::make_unique<Kind>(id, std::forward<Args>(args)...));
    }
    // Called for every change that must outlive the process, before a client is told of it.
    void changed(Node* node) {
        count(*node);
        if (node->unrecorded || recorder_ == nullptr) return;
        node->unrecorded = true;
        recorder_->changed(*node);
    }
    void set_recorder(Recorder* recorder) { recorder_ = recorder; }
    Node* find(NodeId id) const {
        auto found = nodes_.find(id);
        return found == nodes_.end() ? nullptr : found->second.get();
    }
    // Brings the budget of its owner up to date. Called by changed().
    void count(Node& node) {
        const auto bytes = static_cast<uint32_t>(node.name_bytes());
        if (bytes != node.counted_bytes || node.uid != node.counted_uid) count_again(node, bytes);
    }
    // EDQUOT: the user has no room for so many further bytes. ENOSPC: the runtime folder is full.
    Status check_room(uid_t uid, uint64_t bytes);
    void erase(Node* node) {
        if (node->kind == NodeKind::object) --objects_;
        count_again(*node, 0);
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
    AclTable& acls() { return *acls_; }

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

    void count_again(Node& node, uint32_t bytes);
    Budgets::User& user(uid_t uid);

    Budgets& budgets_;
    std::unordered_map<uid_t, std::shared_ptr<Budgets::User>> users_;  // that have had nodes
    Budgets::User* last_user_ = nullptr;                               // of user()
    Numbers ids_;
    size_t objects_ = 0;
    Recorder* recorder_ = nullptr;
    std::shared_ptr<AclTable> acls_ = make_acl_table();  // before the nodes, which refer to it
    std::unordered_map<NodeId, std::unique_ptr<Node>> nodes_;
};

inline Directory* as_directory(Node* node) {
    return node->kind == NodeKind::directory ? static_cast<Directory*>(node) : nullptr;
}
inline Object* as_object(Node* node) {
    return node->kind == NodeKind::object ? static_cast<Object*>(node) : nullptr;
}

}  // namespace gshm::core
