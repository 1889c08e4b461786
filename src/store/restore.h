// Restores a store from the catalog and the ledger of an earlier daemon: extents first, then nodes, then, in finish(),
// the ledger. Data that no daemon can have written is an error (EUCLEAN). A salvage leaves it out, and reports it.
#pragma once

#include <string>
#include <vector>

#include "store/kept_facts.h"
#include "store/store.h"

namespace gshm::core {

struct SavedExtent {
    uint64_t key = 0;
    ExtentId id = 0;  // 0: any
    DeviceIndex device = 0;
    uint64_t shown_bytes = 0;
    bool compressible = false;
    bool closed = false;
    bool handle_given = false;
    std::optional<SlabKey> slab;
    std::shared_ptr<Extent> memory;
    uint64_t row_sum = 0;
};

struct SavedLink {
    NodeId parent = 0;
    uint64_t cookie = 0;
    std::string name;
};

struct SavedNode {
    NodeId id = 0;
    NodeKind kind = NodeKind::object;
    uint16_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    int64_t created_ns = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    std::vector<SavedLink> links;
    std::string last_name;  // of a node without a name
    Attributes attributes;
    std::string acl;  // as of encode_acl(); "": none
    std::string default_acl;
    // Of an object; `device` also of a directory.
    std::optional<DeviceIndex> device;
    ObjectState state = ObjectState::open;
    uint32_t flags = 0;
    uint64_t size_bytes = 0;
    uint64_t extent = 0;  // its key; 0: no memory
    uint64_t offset = 0;
    SessionId creator = 0;
    int64_t file_modified_ns = 0;
    int64_t file_accessed_ns = 0;
    struct Retired {
        uint64_t extent = 0;
        uint64_t offset = 0;
        uint64_t size_bytes = 0;
    };
    std::vector<Retired> retired;
    int64_t ttl_ns = 0;                       // 0: none
    int64_t ttl_from_ns = 0;                  // as of Clock::steady_ns()
    std::optional<DeviceIndex> evicted_from;  // see Object
    uint64_t stored = 0;
    // Of a directory.
    bool implicit = false;
    // `target` of a symbolic link; `type` and `number` of a special file.
    std::string target;
    uint32_t type = 0;
    uint32_t number = 0;
    uint64_t row_sum = 0;
    std::string limits;              // of a directory; see AccountLimits
    std::vector<NodeId> counted_in;  // of an object without a name: directories with limits
};

class Restorer {
public:
    // The store gets its recorder before finish() and not earlier. Its ledger is that of the earlier daemon.
    // salvage: memory without a node and nodes without a directory get names in lost+found/.
    enum class Mode { strict, salvage };
    explicit Restorer(Store& store, Mode mode = Mode::strict) : store_(store), mode_(mode) {}

    Status add(SavedExtent extent);
    Status add(SavedNode node);
    // For rows without checksums: checks them as a whole before finish(), which would do so after their first change.
    // EUCLEAN also if an object has no memory.
    Status link_and_check();
    bool has_extent(uint64_t key) const { return extents_.contains(key); }
    // Restores the sessions and leases of the ledger. If the mount continues, open files and backing files are restored
    // as well, and `refer` makes a reference for every node, since the kernel may know it. Null: no mount. Sessions of
    // processes that `lives` denies end at once, and the objects that they did not seal are reclaimed.
    struct Process {
        pid_t pid = 0;
        uint64_t started = 0;
    };
    using Lives = std::function<bool(const Process&)>;
    // Returns the sessions whose processes live.
    using Sessions = std::vector<std::pair<SessionId, Process>>;
    using Refer = std::function<void(Node&)>;
    Result<Sessions> finish(const Refer& refer, const Lives& lives);

    // adopt.cc: an object of an earlier catalog, whose bytes are in that file of a tier's folder. For a store that is
    // complete. A name that is taken, or whose directories have other rights now, becomes one in lost+found/, and
    // `ret_lost` gets the former one.
    Object* adopt(const KeptFacts& facts, DeviceIndex home, uint64_t file, std::string* ret_lost);

    // Of a salvage, after finish().
    struct Salvaged {
        uint64_t objects = 0;  // with a new name in lost+found/
        uint64_t bytes = 0;
        uint64_t left_out = 0;  // invalid rows and ledger entries
        std::string first;      // the error of the first of them
    };
    const Salvaged& salvaged() const { return salvaged_; }

private:
    // restore_check.cc
    static Status check(const SavedExtent& extent);
    Status check(const SavedNode& node) const;
    // Sets the entries of its ACLs; none: it has none.
    static Status read_acls(const SavedNode& node, std::vector<AclEntry>& ret_acl,
                            std::vector<AclEntry>& ret_default_acl);
    Status check_place(const SavedNode& node, uint64_t extent, uint64_t offset, uint64_t bytes) const;
    Status check_slabs();
    void drop_place(Object* object, StoredExtent* extent, uint64_t offset);
    Status check_tree() const;
    // Returns the error. A salvage logs and counts it instead.
    Status note_damage(Error error);

    // Null: other rights than those, or no directory.
    Directory* adopt_way(const KeptFacts::Name& name, std::string_view* ret_last);

    // salvage.cc
    void skip_numbers();
    void name_lost_memory();
    void name_lost_nodes();
    void put_in_lost_and_found(Node* node, const std::string& name);
    Object* make_lost(StoredExtent* extent, uint64_t offset, uint64_t bytes);

    Status link_all();
    void zero_rest();
    Object* object_of(const LedgerEntry& entry) const;
    Status restore_sessions(const std::vector<Ledger::Slot>& slots);
    void restore_creators();
    Status restore_leases(const std::vector<Ledger::Slot>& slots, bool with_mount);
    bool restore_lease(Ledger::Slot slot, bool with_mount, bool* ret_twice);
    bool restore_backing(Ledger::Slot slot, Object* object);
    void restore_trees();
    void free_unused();

    Store& store_;
    Mode mode_;
    Salvaged salvaged_;
    bool linked_ = false;
    Directory* lost_and_found_ = nullptr;
    struct PendingLink {
        Node* node;
        SavedLink link;
    };
    std::vector<PendingLink> links_;
    std::vector<std::pair<Object*, SessionId>> creators_;
    std::vector<Object*> lost_;
    std::vector<std::pair<Object*, std::vector<NodeId>>> counted_in_;  // without a name
    std::vector<Directory*> directories_;
    std::unordered_map<uint64_t, StoredExtent*> extents_;  // by key
    struct Range {
        uint64_t offset;
        uint64_t bytes;
        Object* object;
    };
    std::unordered_map<StoredExtent*, std::vector<Range>> taken_;  // of slabs
};

}  // namespace gshm::core
