// The catalog: what must outlive gshmd of its store, in an SQLite file. Changes are gathered and written in one
// transaction by commit(), which is called before anyone is told of them; a kill at any instruction leaves all of a
// commit or nothing. Not thread-safe, as the store.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "catalog/sqlite.h"
#include "store/restore.h"

namespace gshm {

class Catalog {
public:
    // Opens it, or makes an empty one. EPROTO: it was written by a newer gshmd.
    static Result<std::unique_ptr<Catalog>> create(const std::string& path);
    // The files that it consists of, for whoever removes it.
    static std::vector<std::string> files(const std::string& path);

    // ---- single values ----
    Result<std::optional<std::string>> value(std::string_view key);
    Status set_value(std::string_view key, std::string_view value);

    // ---- what is there ----
    // The devices by which rows speak of them; to be called before load() and commit(). Those of the catalog that are
    // not among them are returned if they have memory: what is there cannot be loaded then.
    Result<std::vector<std::string>> use_devices(const std::vector<DeviceInfo>& devices);
    // An extent as it was when it was written down; `take` gives its memory, null: it is lost. An error ends the load.
    struct Kept {
        uint64_t key = 0;
        DeviceIndex device = 0;
        uint64_t size_bytes = 0;
        bool compressible = false;
        bool is_file = false;
    };
    using Take = std::function<Result<std::shared_ptr<Extent>>(const Kept&)>;
    Status load_extents(Restorer& restorer, const Take& take);
    Status load_nodes(Restorer& restorer);

    // ---- changes ----
    void changed(Node& node) { nodes_.insert_or_assign(node.id, &node); }
    void erased(const Node& node);
    void changed(StoredExtent& extent) { extents_.insert_or_assign(extent.key, &extent); }
    void erased(const StoredExtent& extent);
    // A request of the kernel that must not be done twice has been done, and made the node if it makes one. The mark of
    // `answered` is of no use any more; 0: none.
    void mark_done(uint64_t request, NodeId node, uint64_t answered);
    Result<std::unordered_map<uint64_t, NodeId>> done();
    Status forget_done();

    bool is_pending() const {
        return !nodes_.empty() || !extents_.empty() || !erased_nodes_.empty() || !erased_extents_.empty() ||
               !marks_.empty();
    }
    // Nothing is lost if it fails: the next one writes it.
    Status commit();

private:
    explicit Catalog(Database database) : database_(std::move(database)) {}
    Status prepare();
    Status write_all();
    Status write(const Node& node);
    Status write(const StoredExtent& extent);

    Database database_;
    Statement begin_, commit_, rollback_, get_value_, put_value_, put_node_, erase_node_, put_extent_, erase_extent_,
        put_mark_, erase_mark_;
    std::vector<int64_t> device_numbers_;                     // by index
    std::map<int64_t, DeviceIndex> device_indexes_;           // by number

    // Since the last commit.
    std::unordered_map<NodeId, Node*> nodes_;
    std::unordered_map<uint64_t, StoredExtent*> extents_;
    std::vector<NodeId> erased_nodes_;
    std::vector<uint64_t> erased_extents_;
    struct Mark {
        uint64_t request;
        NodeId node;
        uint64_t answered;
    };
    std::vector<Mark> marks_;
};

}  // namespace gshm
