// Puts a store together again from what an earlier daemon has written down: extents first, then nodes, then who holds
// what (the ledger), then finish(). What does not fit together is left out, and said.
#pragma once

#include <string>
#include <vector>

#include "store/store.h"

namespace gshm {

struct SavedExtent {
    uint64_t key = 0;
    ExtentId id = 0;
    DeviceIndex device = 0;
    uint64_t shown_bytes = 0;
    bool compressible = false;
    bool closed = false;
    std::optional<SlabKey> slab;
    std::shared_ptr<Extent> memory;
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
    std::string last_name;  // of one without
    Attributes attributes;
    // Of an object; the device of a directory, too.
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
    // Of a directory.
    bool implicit = false;
    // Of a symbolic link; of a special file its type and number.
    std::string target;
    uint32_t type = 0;
    uint32_t number = 0;
};

class Restorer {
public:
    // The store gets its recorder before finish() and not earlier; its ledger is the earlier daemon's.
    explicit Restorer(Store& store) : store_(store) {}

    void add(SavedExtent extent);
    void add(const SavedNode& node);
    // Sessions and leases of the ledger; with_mount: open files and backing files, too, which else have gone with it.
    // Those of a process that `lives` denies end at once, with what they made and did not seal.
    struct Process {
        pid_t pid = 0;
        uint64_t started = 0;
    };
    using Lives = std::function<bool(const Process&)>;
    // Returns the sessions whose processes live.
    std::vector<std::pair<SessionId, Process>> finish(bool with_mount, const Lives& lives);

private:
    void link_all();
    void zero_rest();
    Object* object_of(const LedgerEntry& entry) const;
    void restore_sessions();
    void restore_creators();
    void restore_leases(bool with_mount);
    void free_unused();

    Store& store_;
    struct PendingLink {
        Node* node;
        SavedLink link;
    };
    std::vector<PendingLink> links_;
    std::vector<std::pair<Object*, SessionId>> creators_;
    std::vector<Object*> lost_;
    std::unordered_map<uint64_t, StoredExtent*> extents_;  // by key
    struct Range {
        uint64_t offset;
        uint64_t bytes;
    };
    std::unordered_map<StoredExtent*, std::vector<Range>> taken_;  // of slabs
};

}  // namespace gshm
