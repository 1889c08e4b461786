// Loading a catalog: every row is checked, by itself and as part of the whole.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <unordered_set>

#include "base/mutex.h"
#include "catalog/catalog.h"
#include "catalog/encoding.h"

namespace gshm::core {
namespace {

// The ledger and the keeper use the bits above for a kind or a flag.
constexpr uint64_t kMostId = (uint64_t{1} << 56) - 1;
constexpr uint64_t kMostNumber = INT64_MAX;

}  // namespace

// Reads the columns of a row in order, with bounds, and sums them. NULL counts as 0 or as no bytes: asking for the type
// of each column would cost a tenth of the time.
class RowReader {
public:
    explicit RowReader(const Statement& row) : row_(row) {}
    int64_t any_number() {
        const int64_t value = row_.number(column_);
        sum_.add(value);
        ++column_;
        return value;
    }
    uint64_t number(uint64_t most = kMostNumber) {
        const int64_t value = any_number();
        if (value < 0 || static_cast<uint64_t>(value) > most) wrong();
        return static_cast<uint64_t>(value);
    }
    bool flag() { return number(1) != 0; }
    std::string_view bytes() {
        const std::string_view value = row_.blob(column_);
        sum_.add(value);
        ++column_;
        return value;
    }
    bool is_null() const { return row_.is_null(column_); }
    // The previous column is invalid.
    void wrong() { wrong_ = column_ - 1; }
    // After the last column before the checksum. EUCLEAN: a column is out of bounds, or the checksum does not match.
    Status check(const char* table) const {
        if (row_.unsigned_number(column_) != sum_.value()) {
            return fail(EUCLEAN, "row {} of the table {} is damaged", row_.number(0), table);
        }
        if (wrong_ < 0) return {};
        return fail(EUCLEAN, "row {} of the table {}: column {} has an invalid value", row_.number(0), table, wrong_);
    }
    uint64_t sum() const { return sum_.value(); }

private:
    const Statement& row_;
    RowSum sum_;
    int column_ = 0;
    int wrong_ = -1;
};

// Rows on their way from the thread that reads them to the thread that builds the store. Bounded.
class NodeQueue {
public:
    // ---- for the reader ----
    // A new row. Rows before it are complete.
    SavedNode& next() EXCLUDES(mutex_) {
        if (reading_.size() == kTogether) hand_over();
        return reading_.emplace_back();
    }
    void end(Status status) EXCLUDES(mutex_) {
        if (!status && !reading_.empty()) reading_.pop_back();  // the row that is in error
        if (!reading_.empty()) hand_over();
        MutexLock lock(mutex_);
        status_ = std::move(status);
        ended_ = true;
        changed_.notify_one();
    }

    // ---- for the other thread ----
    // In the order of the rows; empty: there are no more.
    std::vector<SavedNode> take() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        while (ready_.empty() && !ended_) lock.wait(changed_);
        if (ready_.empty()) return {};
        auto nodes = std::move(ready_.front());
        ready_.pop_front();
        changed_.notify_one();
        return nodes;
    }
    Status status() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return status_;
    }

private:
    static constexpr size_t kTogether = 1024;
    static constexpr size_t kReady = 8;

    void hand_over() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        while (ready_.size() == kReady) lock.wait(changed_);
        ready_.push_back(std::move(reading_));
        reading_.clear();
        reading_.reserve(kTogether);
        changed_.notify_one();
    }

    std::vector<SavedNode> reading_;  // of the reader
    Mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::vector<SavedNode>> ready_ GUARDED_BY(mutex_);
    Status status_ GUARDED_BY(mutex_);
    bool ended_ GUARDED_BY(mutex_) = false;
};

Status Catalog::note_damage(Error error) {
    if (use_ != Use::salvage) return std::unexpected(std::move(error));
    if (damage_.rows++ == 0) damage_.first = error.message;
    return {};
}

Status Catalog::each_row(const char* table, const std::function<Status(RowReader& row)>& on_row) {
    std::unordered_set<std::string> seen;  // keys, for tables read from both ends
    auto read = [&](const char* order) -> Status {
        auto rows = TRY(database_.prepare(fmt::format("SELECT * FROM {}{}", table, order)));
        Status good;
        TRY(rows.each([&] {
            if (!good) return;
            if (use_ == Use::salvage && !seen.emplace(rows.blob(0)).second) return;
            RowReader row(rows);
            good = on_row(row);
            total_ += row.sum();
            if (!good && good.error().code == EUCLEAN) good = note_damage(good.error());
        }));
        return good;
    };
    auto forward = read("");
    if (forward || use_ != Use::salvage || forward.error().code != EUCLEAN) return forward;
    TRY(note_damage(forward.error()));
    if (auto backward = read(" ORDER BY 1 DESC"); !backward) TRY(note_damage(backward.error()));
    return {};
}

Status Catalog::read_small_tables() {
    TRY(each_row("meta", [&](RowReader& row) -> Status {
        std::string key(row.bytes());
        std::string bytes(row.bytes());
        TRY(row.check("meta"));
        values_[std::move(key)] = {std::move(bytes), row.sum()};
        return {};
    }));
    TRY(each_row("devices", [&](RowReader& row) -> Status {
        DeviceRow device;
        device.number = static_cast<int64_t>(row.number(INT32_MAX));
        device.name = row.bytes();
        device.uuid = row.bytes();
        TRY(row.check("devices"));
        devices_.push_back(std::move(device));
        return {};
    }));
    return each_row("done", [&](RowReader& row) -> Status {
        const auto request = static_cast<uint64_t>(row.any_number());
        const NodeId node = row.number(kMostId);
        TRY(row.check("done"));
        done_[request] = {node, row.sum()};
        return {};
    });
}

Status Catalog::load_extents(Restorer& restorer, const Take& take) {
    return each_row("extents", [&](RowReader& row) -> Status {
        Kept kept;
        SavedExtent extent;
        extent.key = kept.key = row.number(kMostId);
        extent.id = row.number(kMostId);
        if (auto device = device_indexes_.find(row.any_number()); device == device_indexes_.end()) row.wrong();
        else extent.device = kept.device = device->second;
        kept.size_bytes = row.number();
        extent.shown_bytes = row.number();
        extent.compressible = kept.compressible = row.flag();
        kept.is_file = row.flag();
        const bool is_slab = row.flag();
        extent.closed = row.flag();
        SlabKey slab;
        slab.device = kept.device;
        slab.uid = static_cast<uid_t>(row.number(UINT32_MAX));
        slab.gid = static_cast<gid_t>(row.number(UINT32_MAX));
        slab.mode = static_cast<uint16_t>(row.number(07777));
        slab.compressible = kept.compressible;
        slab.reach = row.bytes();
        if (is_slab) extent.slab = std::move(slab);
        kept.kept = row.flag();
        extent.handle_given = row.flag();
        const std::string_view handle = row.bytes();
        if (handle.size() == sizeof(FabricHandle)) memcpy(kept.handle.emplace().data(), handle.data(), handle.size());
        else if (!handle.empty()) row.wrong();
        TRY(row.check("extents"));
        extent.row_sum = row.sum();
        extent.memory = TRY(take(kept));
        if (extent.memory == nullptr) return {};
        return restorer.add(std::move(extent));
    });
}

Status Catalog::read_node(RowReader& row, SavedNode& node) const {
    node.id = row.number(kMostId);
    node.kind = static_cast<NodeKind>(row.number(UINT8_MAX));
    node.mode = static_cast<uint16_t>(row.number(07777));
    node.uid = static_cast<uid_t>(row.number(UINT32_MAX));
    node.gid = static_cast<gid_t>(row.number(UINT32_MAX));
    node.created_ns = row.any_number();
    node.accessed_ns = row.any_number();
    node.modified_ns = row.any_number();
    node.changed_ns = row.any_number();
    const bool has_name = !row.is_null();
    const NodeId parent = row.number(kMostId);
    const uint64_t cookie = row.number();
    if (has_name) node.links.push_back({parent, cookie, std::string(row.bytes())});
    else node.last_name = row.bytes();
    const bool has_device = !row.is_null();
    auto device = device_indexes_.find(row.any_number());
    if (has_device && device == device_indexes_.end()) row.wrong();
    else if (has_device) node.device = device->second;
    node.state = static_cast<ObjectState>(row.number(UINT8_MAX));
    node.flags = static_cast<uint32_t>(row.number(UINT32_MAX));
    node.size_bytes = row.number();
    node.extent = row.number(kMostId);
    node.offset = row.number();
    node.creator = row.number(kMostId);
    node.file_modified_ns = row.any_number();
    node.file_accessed_ns = row.any_number();
    node.implicit = row.flag();
    node.target = row.bytes();
    node.type = static_cast<uint32_t>(row.number(UINT32_MAX));
    node.number = static_cast<uint32_t>(row.number(UINT32_MAX));
    const std::string_view more = row.bytes();
    TRY(row.check("nodes"));
    TRY(decode_more(more, node, device_indexes_));
    node.row_sum = row.sum();
    return {};
}

Status Catalog::load_nodes(Restorer& restorer) {
    if (use_ == Use::salvage) {  // a row that the restorer refuses is skipped as well
        return each_row("nodes", [&](RowReader& row) -> Status {
            SavedNode node;
            TRY(read_node(row, node));
            return restorer.add(std::move(node));
        });
    }
    // Half of the time goes to SQLite. Its rows are read in another thread.
    NodeQueue queue;
    std::thread reader(
        [&] { queue.end(each_row("nodes", [&](RowReader& row) { return read_node(row, queue.next()); })); });
    Status good;
    for (auto nodes = queue.take(); !nodes.empty(); nodes = queue.take()) {
        for (SavedNode& node : nodes) {
            if (good) good = restorer.add(std::move(node));
        }
    }
    reader.join();
    TRY(std::move(good));  // its row is before any that could not be read
    return queue.status();
}

Status Catalog::check() {
    if (migrated_from_ != 0) {
        // The old rows have the sum `last`, the new ones `next`: a kill before or after the commit leaves either.
        if (sum_ != nullptr) sum_->next = total_;
        MutexLock lock(mutex_);
        if (auto committed = commit_.run(); !committed) {
            (void)rollback_.run();
            return committed;
        }
        if (sum_ != nullptr) sum_->last = total_;
    } else if (sum_ != nullptr) {
        if (total_ != sum_->last && total_ != sum_->next) {
            return fail(EUCLEAN, "its rows are not those of the last commit: some are missing or outdated");
        }
        sum_->last = sum_->next = total_;
    }
    if (applied_) {
        MutexLock lock(mutex_);
        // On a full disk the rows stay in the journal, for a later drain().
        if (commit_.run()) journal_->drop(*applied_);
        else (void)rollback_.run();
        applied_.reset();
    }
    database_.allow_checkpoints();
    return {};
}

}  // namespace gshm::core
