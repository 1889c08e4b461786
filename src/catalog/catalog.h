// The catalog: the part of the store that must outlive gshmd, in an SQLite file. Changes are gathered and written in
// one transaction, before they are reported to anyone. A kill at any instruction leaves all of a transaction or
// nothing. Not thread-safe, as the store, except write(): the store can change while rows of earlier changes are
// written.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "catalog/rows.h"
#include "store/restore.h"

namespace gshm::core {

// The sum of all row checksums, in memory that outlives the process and the files: a commit sets `next` before and
// `last` after. After a kill the rows have one of the two sums; any other sum is damage or an outdated file.
struct CatalogSum {
    std::atomic<uint64_t> last;
    std::atomic<uint64_t> next;
};

class RowReader;

class Catalog {
public:
    // Opens it, or makes an empty one. EPROTO: written by a newer gshmd. `sum` is kept up to date.
    static Result<std::unique_ptr<Catalog>> create(const std::string& path, CatalogSum* sum = nullptr);
    // Opens an existing catalog whose sum must match: see check(). Until then its files are not written. ENOENT,
    // EUCLEAN (damaged), EPROTO.
    static Result<std::unique_ptr<Catalog>> open(const std::string& path, CatalogSum& sum);
    // Opens a damaged catalog for reading: damaged rows are skipped and counted. Rows behind an unreadable page are
    // read from the other end.
    static Result<std::unique_ptr<Catalog>> salvage(const std::string& path);
    // The files of a catalog, for removal.
    static std::vector<std::string> files(const std::string& path);

    // ---- single values ----
    std::optional<std::string> value(std::string_view key) const;
    Status set_value(std::string_view key, std::string_view value) EXCLUDES(mutex_);

    // ---- loading ----
    // Sets the devices that rows refer to; called before load() and commit(). Returns devices of the catalog that are
    // missing and have memory: it cannot be loaded then.
    Result<std::vector<std::string>> use_devices(const std::vector<DeviceInfo>& devices);
    // An extent as recorded; `take` returns its memory, null: lost. An error ends the load.
    struct Kept {
        uint64_t key = 0;
        DeviceIndex device = 0;
        uint64_t size_bytes = 0;
        bool compressible = false;
        bool is_file = false;
        bool kept = true;  // the keeper was given its descriptor
        std::optional<FabricHandle> handle;  // Extent::lasting_handle()
    };
    using Take = std::function<Result<std::shared_ptr<Extent>>(const Kept&)>;
    Status load_extents(Restorer& restorer, const Take& take);
    Status load_nodes(Restorer& restorer);
    // After both loads: EUCLEAN unless the rows are those of the last commit. Nothing has been written until now.
    Status check();
    // After salvage(): the number of skipped rows, and the first problem.
    struct Damage {
        uint64_t rows = 0;
        std::string first;
    };
    const Damage& damage() const { return damage_; }

    // ---- changes ----
    void changed(Node& node) { nodes_.insert_or_assign(node.id, &node); }
    void erased(const Node& node);
    void changed(StoredExtent& extent) { extents_.insert_or_assign(extent.key, &extent); }
    void erased(const StoredExtent& extent);
    // A request of the kernel that must not run twice was executed, and made the node if it makes one. The mark of
    // `answered` is no longer needed; 0: none.
    void mark_done(uint64_t request, NodeId node, uint64_t answered);
    Result<std::unordered_map<uint64_t, NodeId>> done();
    Status forget_done();

    // Converts the changes so far to rows for the next write().
    void gather() EXCLUDES(gathered_mutex_);
    // From any thread, also while the store changes: writes all gathered rows, in order, in one transaction. If it
    // fails, the next call writes them.
    Status write() EXCLUDES(mutex_, gathered_mutex_);
    Status commit() {
        gather();
        return write();
    }

private:
    enum class Use { make, existing, salvage };
    Catalog(Database database, Use use, CatalogSum* sum) : database_(std::move(database)), use_(use), sum_(sum) {}
    static Result<std::unique_ptr<Catalog>> open_as(const std::string& path, Use use, CatalogSum* sum);
    Status prepare();
    Status set_up();
    Status prepare_statements();
    Status read_small_tables();
    // Reads every row of a table, ordered by the first column. EUCLEAN from `on_row` is damage.
    Status each_row(const char* table, const std::function<Status(RowReader& row)>& on_row);
    Status note_damage(Error error);
    // `change` runs in a transaction and updates the sum of the rows.
    Status transact(const std::function<Status(uint64_t& sum)>& change) REQUIRES(mutex_);
    Status try_transact(const std::function<Status(uint64_t& sum)>& change) REQUIRES(mutex_);
    Status put_value(std::string_view key, std::string_view value, uint64_t& sum) REQUIRES(mutex_);
    void gather(Node& node, Rows& rows);
    void gather(StoredExtent& extent, Rows& rows);
    void gather_marks(Rows& rows);
    struct MarkRow {
        NodeId node;
        uint64_t sum;
    };
    // Erases marks before the end.
    Status erase_done(std::map<uint64_t, MarkRow>::iterator end) EXCLUDES(mutex_);
    enum Writes : uint8_t { kPutNode, kEraseNode, kPutExtent, kEraseExtent, kPutMark, kEraseMark, kPutDevice };
    Statement& statement(uint8_t writes) { return statements_[writes]; }

    Mutex mutex_;  // guards the database once it is loaded; taken after the store lock
    Database database_;
    Use use_;
    CatalogSum* sum_;             // null: not checked
    uint64_t total_ = 0;          // sum of all rows, as last read or written
    Damage damage_;
    Statement begin_, commit_, rollback_, put_value_;
    Statement statements_[kPutDevice + 1];  // by Writes
    std::vector<Rows> writing_ GUARDED_BY(mutex_);  // gathered, and not yet written
    Mutex gathered_mutex_;                          // no other lock is taken while it is held
    std::vector<Rows> gathered_ GUARDED_BY(gathered_mutex_);
    std::vector<Rows> spare_ GUARDED_BY(gathered_mutex_);  // empty, for reuse of their memory
    // The small tables, as in the file.
    struct Value {
        std::string bytes;
        uint64_t sum = 0;
    };
    std::map<std::string, Value, std::less<>> values_;
    struct DeviceRow {
        int64_t number;
        std::string name;
        std::string uuid;
    };
    std::vector<DeviceRow> devices_;
    std::map<uint64_t, MarkRow> done_;                        // by request
    std::vector<int64_t> device_numbers_;                     // by index
    std::map<int64_t, DeviceIndex> device_indexes_;           // by number

    // Since the last gather().
    std::unordered_map<NodeId, Node*> nodes_;
    std::unordered_map<uint64_t, StoredExtent*> extents_;
    struct Erased {
        uint64_t id;
        uint64_t sum;  // of the row; 0: no row
    };
    std::vector<Erased> erased_nodes_;
    std::vector<Erased> erased_extents_;
    struct Mark {
        uint64_t request;
        NodeId node;
        uint64_t answered;
    };
    std::vector<Mark> marks_;
    std::vector<DeviceRow> added_devices_;
};

}  // namespace gshm::core
