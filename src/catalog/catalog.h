// The catalog: the part of the store that must outlive gshmd, in an SQLite file and in a journal in memory that outlives
// gshmd. A commit appends the rows of all changes to the journal, before they are reported to anyone; drain() moves them
// to the file. A kill at any instruction leaves all of a commit or nothing. Without a journal a commit writes to the file.
// Not thread-safe, as the store, except drain().
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "catalog/journal.h"
#include "catalog/migrations.h"
#include "catalog/rows.h"
#include "store/restore.h"

namespace gshm::core {

// The sum of all row checksums, in memory that outlives the process and the files: a commit sets `next` before and
// `last` after. After a kill the rows, those of the journal included, have one of the two sums; any other sum is damage or
// an outdated file.
struct CatalogSum {
    std::atomic<uint64_t> last;
    std::atomic<uint64_t> next;
};

class RowReader;

class Catalog {
public:
    // Opens it, or makes an empty one. EPROTO: of another version. `sum` is kept up to date. The journal is empty.
    static Result<std::unique_ptr<Catalog>> create(const std::string& path, CatalogSum* sum = nullptr,
                                                   Journal* journal = nullptr);
    // Opens an existing catalog whose sum must match: see check(). Until then its files are not written, except that the
    // journal of an older version is applied. An older version is migrated; version 1 has no sum to match. ENOENT,
    // EUCLEAN (damaged), EPROTO (written by a newer gshmd).
    static Result<std::unique_ptr<Catalog>> open(const std::string& path, CatalogSum& sum, Journal* journal = nullptr,
                                                 Migrations steps = migrations());
    // EPROTO: open() would refuse its version. A running gshmd may have it open.
    static Status check_version(const std::string& path);
    // The version of the file if open() migrates it, else 0.
    int migrated_from() const { return migrated_from_; }
    // Opens a damaged catalog for reading, with the rows of its journal: damaged rows are skipped and counted. Rows behind
    // an unreadable page are read from the other end. Neither the files nor the journal are changed.
    static Result<std::unique_ptr<Catalog>> salvage(const std::string& path, Journal* journal = nullptr);
    // From now on commits append to it. It is empty.
    void use_journal(Journal& journal) { journal_ = &journal; }
    // The files of a catalog, for removal.
    static std::vector<std::string> files(const std::string& path);

    // ---- single values ----
    std::optional<std::string> value(std::string_view key) const;
    Status set_value(std::string_view key, std::string_view value) EXCLUDES(mutex_);
    // The same with the next commit().
    void note_value(std::string_view key, std::string_view value) {
        noted_values_.insert_or_assign(std::string(key), value);
    }
    // Those whose keys begin with the prefix, by the rest of the key. Empty values are left out.
    std::map<std::string, std::string> values(std::string_view prefix) const;

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
        bool kept = true;                    // the keeper was given its descriptor
        std::optional<FabricHandle> handle;  // Extent::lasting_handle()
    };
    using Take = std::function<Result<std::shared_ptr<Extent>>(const Kept&)>;
    Status load_extents(Restorer& restorer, const Take& take);
    Status load_nodes(Restorer& restorer);
    // After both loads: EUCLEAN unless the rows are those of the last commit. Nothing has been written until now. A
    // migration is committed here: a kill leaves the old version or the new one.
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

    // Makes the changes so far durable. If it fails, the next commit includes them. Waits for the file if the journal is
    // full.
    Status commit() EXCLUDES(mutex_);
    // From any thread: moves the rows of the journal to the file, in one transaction.
    Status drain() EXCLUDES(mutex_);
    // The same in many small transactions, which need little space in the folder.
    Status drain_in_parts() EXCLUDES(mutex_);
    // From any thread: whether drain() gives all free space of the file back to the folder, not only when most is free.
    void set_tight(bool tight) { tight_.store(tight, std::memory_order_relaxed); }

private:
    enum class Use { make, existing, salvage };
    Catalog(Database database, Use use, CatalogSum* sum, Journal* journal, Migrations steps)
        : database_(std::move(database)), use_(use), sum_(sum), journal_(journal), steps_(steps) {}
    static Result<std::unique_ptr<Catalog>> open_as(const std::string& path, Use use, CatalogSum* sum, Journal* journal,
                                                    Migrations steps);
    static std::unexpected<Error> fail_newer(int64_t found, int newest);
    Status prepare();
    Status migrate(int found);
    Status finish_older(int found);
    Result<Statement> prepare_put(const char* table);
    Status set_up();
    Status prepare_statements();
    Status read_small_tables();
    // Reads every row of a table, ordered by the first column. EUCLEAN from `on_row` is damage.
    Status each_row(const char* table, const std::function<Status(RowReader& row)>& on_row);
    Status read_node(RowReader& row, SavedNode& node) const;
    Status note_damage(Error error);
    // `change` runs in a transaction of the file.
    Status transact(const std::function<Status()>& change) REQUIRES(mutex_);
    Status try_transact(const std::function<Status()>& change) REQUIRES(mutex_);
    Status run(std::string_view rows) REQUIRES(mutex_);
    // Applies the journal in a transaction that check() commits.
    Status apply_journal() EXCLUDES(mutex_);
    // Converts the changes since the last call to rows_.
    void gather();
    void gather(Node& node);
    void gather(StoredExtent& extent);
    void gather_marks();
    void gather(std::string_view key, std::string_view value);
    Status write_rows() EXCLUDES(mutex_);
    Status write_rows_to_file() REQUIRES(mutex_);
    void shrink() REQUIRES(mutex_);
    struct MarkRow {
        NodeId node;
        uint64_t sum;
    };
    // Erases marks before the end.
    Status erase_done(std::map<uint64_t, MarkRow>::iterator end) EXCLUDES(mutex_);
    // The numbers are in journals: they do not change.
    enum Writes : uint8_t {
        kPutNode = 0,
        kEraseNode = 1,
        kPutExtent = 2,
        kEraseExtent = 3,
        kPutMark = 4,
        kEraseMark = 5,
        kPutDevice = 6,
        kPutValue = 7
    };

    Mutex mutex_;  // guards the database once it is loaded; taken after the store lock
    Database database_;
    Use use_;
    CatalogSum* sum_;   // null: not checked
    Journal* journal_;  // null: commits write to the file
    Migrations steps_;
    int migrated_from_ = 0;            // in a transaction until check()
    std::optional<uint64_t> applied_;  // the place in the journal up to which its rows are in the open transaction
    uint64_t total_ = 0;               // sum of all rows, as last read or committed
    Damage damage_;
    Statement begin_, commit_, rollback_;
    Statement pages_;  // free ones, all
    std::atomic<bool> tight_ = false;
    Statement statements_[kPutValue + 1];  // by Writes
    Rows rows_;                            // gathered, and not yet committed
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
    std::map<uint64_t, MarkRow> done_;               // by request
    std::vector<int64_t> device_numbers_;            // by index
    std::map<int64_t, DeviceIndex> device_indexes_;  // by number

    // Since the last commit(). Not hash tables: after one large batch, each clear() would take as long as the batch.
    std::map<NodeId, Node*> nodes_;
    std::map<uint64_t, StoredExtent*> extents_;
    struct Erased {
        uint64_t id;
        uint64_t sum;  // of the row; 0: no row
    };
    std::vector<Erased> erased_nodes_;
    std::vector<Erased> erased_extents_;
    std::map<std::string, std::string, std::less<>> noted_values_;
    struct Mark {
        uint64_t request;
        NodeId node;
        uint64_t answered;
    };
    std::vector<Mark> marks_;
    std::vector<DeviceRow> added_devices_;
};

}  // namespace gshm::core
