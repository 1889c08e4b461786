#include "catalog/catalog.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "catalog/encoding.h"

namespace gshm::core {
namespace {

// Not synced to the disk: the catalog ends with the boot, as the memory does.
constexpr const char* kPragmas = R"(
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA synchronous = OFF;
PRAGMA temp_store = MEMORY;
PRAGMA cache_spill = OFF;
PRAGMA journal_size_limit = 8388608;
)";
// Version 2, the newest. The last column is the checksum of the others. A change needs a further step in migrations.cc.
constexpr const char* kTables = R"(
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB, sum INTEGER) WITHOUT ROWID;
CREATE TABLE devices (number INTEGER PRIMARY KEY, name TEXT, uuid TEXT, sum INTEGER);
CREATE TABLE extents (
  key INTEGER PRIMARY KEY, id INTEGER, device INTEGER, size INTEGER, shown INTEGER, compressible INTEGER, file INTEGER,
  slab INTEGER, closed INTEGER, uid INTEGER, gid INTEGER, mode INTEGER, reach BLOB, kept INTEGER, given INTEGER, handle BLOB,
  sum INTEGER);
CREATE TABLE nodes (
  id INTEGER PRIMARY KEY, kind INTEGER, mode INTEGER, uid INTEGER, gid INTEGER,
  created INTEGER, accessed INTEGER, modified INTEGER, changed INTEGER,
  parent INTEGER, cookie INTEGER, name BLOB,
  device INTEGER, state INTEGER, flags INTEGER, size INTEGER, extent INTEGER, offset INTEGER, creator INTEGER,
  file_modified INTEGER, file_accessed INTEGER, implicit INTEGER, target BLOB, type INTEGER, number INTEGER, more BLOB,
  sum INTEGER);
CREATE TABLE done (request INTEGER PRIMARY KEY, node INTEGER, sum INTEGER);
)";

// Marks of requests that the kernel may ask for again; see done().
constexpr int kMostDone = 4096;

}  // namespace

std::vector<std::string> Catalog::files(const std::string& path) {
    return {path, path + "-wal", path + "-shm", path + "-journal"};
}

Result<std::unique_ptr<Catalog>> Catalog::open_as(const std::string& path, Use use, CatalogSum* sum, Journal* journal,
                                                  Migrations steps) {
    const auto mode = use == Use::make ? Database::Mode::make : Database::Mode::existing;
    std::unique_ptr<Catalog> catalog(new Catalog(TRY(Database::open(path, mode)), use, sum, journal, steps));
    TRY(catalog->prepare());
    return catalog;
}

Result<std::unique_ptr<Catalog>> Catalog::create(const std::string& path, CatalogSum* sum, Journal* journal) {
    return open_as(path, Use::make, sum, journal, migrations());
}

Result<std::unique_ptr<Catalog>> Catalog::open(const std::string& path, CatalogSum& sum, Journal* journal,
                                               Migrations steps) {
    // SQLite treats an empty file as new and deletes its log.
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return fail(errno, "{}: {}", path, strerror(errno));
    if (status.st_size == 0) return fail(EUCLEAN, "{} is empty", path);
    return open_as(path, Use::existing, &sum, journal, steps);
}

Result<std::unique_ptr<Catalog>> Catalog::salvage(const std::string& path, Journal* journal) {
    // All rows may still be in the log, which SQLite reads only beside a file that is not empty.
    auto file = UniqueFd::adopt(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat status = {};
    constexpr off_t kPageBytes = 4096;
    if (!file || fstat(file.get(), &status) != 0 || (status.st_size == 0 && ftruncate(file.get(), kPageBytes) != 0)) {
        return fail(errno, "{}: {}", path, strerror(errno));
    }
    return open_as(path, Use::salvage, nullptr, journal, migrations());
}

Status Catalog::prepare() {
    TRY(database_.execute(kPragmas));
    auto version = TRY(database_.prepare("PRAGMA user_version"));
    int64_t found = 0;
    TRY(version.each([&] { found = version.number(0); }));
    const int newest = newest_version(steps_);
    if (found > newest) return fail_newer(found, newest);
    if (found < 0) return fail(EUCLEAN, "the catalog has the format version {}", found);
    if (found == 0 && use_ == Use::make) TRY(set_up());
    else if (found == 0 && use_ == Use::existing) return fail(EUCLEAN, "the catalog has no format version");
    else if (found != 0 && found < newest) TRY(migrate(static_cast<int>(found)));
    auto applied = [&]() -> Status {
        TRY(prepare_statements());
        return journal_ == nullptr ? Status{} : apply_journal();
    }();
    if (!applied) TRY(note_damage(applied.error()));
    return read_small_tables();
}

std::unexpected<Error> Catalog::fail_newer(int64_t found, int newest) {
    return fail(EPROTO,
                "the catalog was written by a newer gshmd (format {}, this one reads up to {}): start the newer one; "
                "`gshm snapshot` there and `gshm restore` here carry objects over. Nothing has been changed",
                found, newest);
}

Status Catalog::check_version(const std::string& path) {
    const int found = version_in_file(path);
    const int newest = newest_version(migrations());
    return found > newest ? Status(fail_newer(found, newest)) : Status();
}

Status Catalog::migrate(int found) {
    // Rows without their checksums cannot be told from damaged ones, so they are not salvaged.
    if (use_ != Use::existing) return fail(EPROTO, "the catalog was written by an older gshmd (format {})", found);
    if (found >= kFirstVersionWithSums) TRY(finish_older(found));
    TRY(database_.execute("BEGIN"));
    migrated_from_ = found;
    if (found < kFirstVersionWithSums) TRY(check_pages(database_));
    return core::migrate(database_, found, steps_);
}

// The journal has rows of the older version: they are applied first, and checked as those of the file are.
Status Catalog::finish_older(int found) {
    TRY(prepare_statements());
    if (journal_ != nullptr) TRY(apply_journal());
    const uint64_t total = TRY(check_rows(database_));
    if (total != sum_->last && total != sum_->next) {
        return fail(EUCLEAN, "its rows (format {}) are not those of the last commit", found);
    }
    sum_->last = sum_->next = total;
    if (!applied_) return {};
    TRY(commit_.run());
    journal_->drop(*std::exchange(applied_, std::nullopt));
    return {};
}

Status Catalog::apply_journal() {
    TRY(journal_->check());
    if (journal_->is_empty()) return {};
    MutexLock lock(mutex_);
    TRY(begin_.run());
    auto applied = journal_->each([&](std::string_view rows) -> Status {
        mutex_.assert_held();
        auto done = run(rows);
        return done ? done : note_damage(done.error());
    });
    if (!applied) return note_damage(applied.error());
    applied_ = *applied;
    return {};
}

Status Catalog::set_up() {
    TRY(database_.execute(kTables));
    TRY(database_.execute(fmt::format("PRAGMA user_version = {}", newest_version(steps_)).c_str()));
    if (sum_ != nullptr) sum_->last = sum_->next = 0;
    return {};
}

Status Catalog::prepare_statements() {
    begin_ = TRY(database_.prepare("BEGIN"));
    commit_ = TRY(database_.prepare("COMMIT"));
    rollback_ = TRY(database_.prepare("ROLLBACK"));
    statements_[kPutNode] = TRY(prepare_put("nodes"));
    statements_[kEraseNode] = TRY(database_.prepare("DELETE FROM nodes WHERE id = ?"));
    statements_[kPutExtent] = TRY(prepare_put("extents"));
    statements_[kEraseExtent] = TRY(database_.prepare("DELETE FROM extents WHERE key = ?"));
    statements_[kPutMark] = TRY(prepare_put("done"));
    statements_[kEraseMark] = TRY(database_.prepare("DELETE FROM done WHERE request = ?"));
    statements_[kPutDevice] = TRY(prepare_put("devices"));
    statements_[kPutValue] = TRY(prepare_put("meta"));
    pages_ = TRY(database_.prepare("SELECT * FROM pragma_freelist_count(), pragma_page_count()"));
    return {};
}

// With as many columns as the table has: journals of an older version are applied to tables of that version.
Result<Statement> Catalog::prepare_put(const char* table) {
    int64_t columns = 0;
    auto count = TRY(database_.prepare(fmt::format("SELECT count(*) FROM pragma_table_info('{}')", table)));
    TRY(count.each([&] { columns = count.number(0); }));
    std::string parameters = "?";
    for (int64_t i = 1; i < columns; ++i) parameters += ",?";
    return database_.prepare(fmt::format("INSERT OR REPLACE INTO {} VALUES ({})", table, parameters));
}

// ---- single values ----

std::optional<std::string> Catalog::value(std::string_view key) const {
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second.bytes;
}

std::map<std::string, std::string> Catalog::values(std::string_view prefix) const {
    std::map<std::string, std::string> found;
    for (auto entry = values_.lower_bound(prefix); entry != values_.end(); ++entry) {
        if (!entry->first.starts_with(prefix)) break;
        if (!entry->second.bytes.empty()) found.emplace(entry->first.substr(prefix.size()), entry->second.bytes);
    }
    return found;
}

Status Catalog::set_value(std::string_view key, std::string_view value) {
    gather(key, value);
    return write_rows();
}

void Catalog::gather(std::string_view key, std::string_view value) {
    auto found = values_.find(key);
    if (found != values_.end() && found->second.bytes == value) return;
    const uint64_t row = rows_.add(kPutValue).bind_blob(key).bind_blob(value).bound_sum();
    rows_.bind(row).delta += row - (found == values_.end() ? 0 : found->second.sum);
    values_[std::string(key)] = {std::string(value), row};
}

Status Catalog::transact(const std::function<Status()>& change) {
    auto done = try_transact(change);
    // SQLite reports some I/O errors as corruption. Damage is detected at a start; here the file was intact.
    if (!done && done.error().code == EUCLEAN) return fail(EIO, "{}", done.error().message);
    return done;
}

Status Catalog::try_transact(const std::function<Status()>& change) {
    if (database_.is_in_transaction()) TRY(rollback_.run());  // left by a commit whose rollback failed
    TRY(begin_.run());
    auto written = change();
    if (written) written = commit_.run();
    if (!written) (void)rollback_.run();
    return written;
}

Status Catalog::run(std::string_view rows) {
    return Rows::run(rows, [&](uint8_t writes) { return writes <= kPutValue ? &statements_[writes] : nullptr; });
}

// ---- loading ----

Result<std::vector<std::string>> Catalog::use_devices(const std::vector<DeviceInfo>& devices) {
    std::vector<DeviceRow> rows = devices_;
    int64_t next = 1;
    for (const auto& row : rows) next = std::max(next, row.number + 1);
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        // A GPU is identified by its UUID, whatever its ordinal.
        auto known = std::find_if(rows.begin(), rows.end(), [&](const DeviceRow& row) {
            return devices[i].uuid.empty() ? row.name == devices[i].name : row.uuid == devices[i].uuid;
        });
        int64_t number = known == rows.end() ? next++ : known->number;
        if (known == rows.end()) added_devices_.push_back({number, devices[i].name, devices[i].uuid});
        else rows.erase(known);
        device_numbers_.push_back(number);
        device_indexes_[number] = i;
    }
    std::vector<std::string> missing;
    for (const auto& row : rows) {
        // Objects in the folder of a tier have no extent.
        auto count = TRY(database_.prepare("SELECT (SELECT count(*) FROM extents WHERE device = ?1) + (SELECT count(*) "
                                           "FROM nodes WHERE device = ?1 AND extent = 0 AND size > 0)"));
        int64_t used = 0;
        count.bind(row.number);
        TRY(count.each([&] { used = count.number(0); }));
        if (used > 0) missing.push_back(row.uuid.empty() ? row.name : fmt::format("{} ({})", row.name, row.uuid));
    }
    return missing;
}

// ---- changes ----

void Catalog::erased(const Node& node) {
    nodes_.erase(node.id);
    erased_nodes_.push_back({node.id, node.row_sum});
}

void Catalog::erased(const StoredExtent& extent) {
    extents_.erase(extent.key);
    erased_extents_.push_back({extent.key, extent.row_sum});
}

void Catalog::mark_done(uint64_t request, NodeId node, uint64_t answered) {
    marks_.push_back({request, node, answered});
}

Result<std::unordered_map<uint64_t, NodeId>> Catalog::done() {
    std::unordered_map<uint64_t, NodeId> found;
    for (const auto& [request, mark] : done_) found.emplace(request, mark.node);
    // Most were answered before the daemon ended and are not needed. The kernel's request numbers increase.
    if (done_.size() <= kMostDone) return found;
    const auto first = std::prev(done_.end(), kMostDone);
    (void)erase_done(first);
    return found;
}

Status Catalog::forget_done() {
    marks_.clear();
    return erase_done(done_.end());
}

Status Catalog::erase_done(std::map<uint64_t, MarkRow>::iterator end) {
    if (end == done_.begin()) return {};
    gather();
    for (auto mark = done_.begin(); mark != end; ++mark) {
        rows_.delta -= mark->second.sum;
        rows_.add(kEraseMark).bind(mark->first);
    }
    done_.erase(done_.begin(), end);
    return write_rows();
}

void Catalog::gather() {
    for (const auto& device : added_devices_) {
        const uint64_t row =
            rows_.add(kPutDevice).bind(device.number).bind_blob(device.name).bind_blob(device.uuid).bound_sum();
        rows_.delta += row;
        rows_.bind(row);
    }
    for (const Erased& node : erased_nodes_) {
        rows_.delta -= node.sum;
        rows_.add(kEraseNode).bind(node.id);
    }
    for (const Erased& extent : erased_extents_) {
        rows_.delta -= extent.sum;
        rows_.add(kEraseExtent).bind(extent.id);
    }
    for (const auto& [key, extent] : extents_) gather(*extent);
    for (const auto& [id, node] : nodes_) gather(*node);
    gather_marks();
    for (const auto& [key, value] : noted_values_) gather(key, value);
    noted_values_.clear();
    devices_.insert(devices_.end(), added_devices_.begin(), added_devices_.end());
    added_devices_.clear();
    nodes_.clear();
    extents_.clear();
    erased_nodes_.clear();
    erased_extents_.clear();
    marks_.clear();
}

Status Catalog::commit() {
    gather();
    return write_rows();
}

Status Catalog::write_rows() {
    if (rows_.empty()) return {};
    const uint64_t sum = total_ + rows_.delta;
    if (sum_ != nullptr) sum_->next.store(sum, std::memory_order_release);
    if (journal_ == nullptr || !journal_->append(rows_.bytes())) {
        // Later rows must not reach the file before earlier ones, nor a transaction be lost between the two.
        if (journal_ != nullptr) {
            log_debug("the catalog's journal is full: a commit waits for the file");
            TRY(drain());
        }
        if (journal_ == nullptr || !journal_->append(rows_.bytes())) {
            MutexLock lock(mutex_);
            TRY(write_rows_to_file());
        }
    }
    if (sum_ != nullptr) sum_->last.store(sum, std::memory_order_release);
    total_ = sum;
    rows_.clear();
    return {};
}

// There is no journal, or they are too large for it.
Status Catalog::write_rows_to_file() {
    return transact([&]() REQUIRES(mutex_) { return run(rows_.bytes()); });
}

Status Catalog::drain() {
    MutexLock lock(mutex_);
    if (journal_ == nullptr || journal_->is_empty()) return {};
    uint64_t place = 0;
    TRY(transact([&]() REQUIRES(mutex_) -> Status {
        place = TRY(journal_->each([&](std::string_view rows) {
            mutex_.assert_held();
            return run(rows);
        }));
        return {};
    }));
    journal_->drop(place);
    shrink();
    return {};
}

Status Catalog::drain_in_parts() {
    MutexLock lock(mutex_);
    if (journal_ == nullptr) return {};
    auto shorten_log = [&] { return database_.execute("PRAGMA wal_checkpoint(TRUNCATE)"); };
    TRY(shorten_log());
    while (!journal_->is_empty()) {
        const auto [rows, place] = TRY(journal_->first());
        TRY(transact([&]() REQUIRES(mutex_) { return run(rows); }));
        journal_->drop(place);
        TRY(shorten_log());
    }
    shrink();
    return {};
}

// After many rows were erased, most pages of the file may be free. They are given back to the file system in small steps:
// each step is a transaction, and needs space for its log.
void Catalog::shrink() {
    constexpr int64_t kFewPages = 2048;
    constexpr int kSteps = 64;
    const bool tight = tight_.load(std::memory_order_relaxed);
    int64_t free = 0;
    int64_t all = 0;
    auto look = [&] {
        return pages_.each([&] {
            free = pages_.number(0);
            all = pages_.number(1);
        });
    };
    bool shrinks = false;
    for (int i = 0; i < kSteps && look() && free > (tight ? 0 : std::max(kFewPages, all / 2)); ++i) {
        const int64_t before = free;
        if (!database_.execute("PRAGMA incremental_vacuum(512)") || !look() || free >= before) break;
        shrinks = true;
    }
    // The file is cut when the log has been written to it.
    if (shrinks) (void)database_.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

void Catalog::gather_marks() {
    auto forget = [&](uint64_t request) -> bool {
        auto found = done_.find(request);
        if (found == done_.end()) return false;
        rows_.delta -= found->second.sum;
        done_.erase(found);
        return true;
    };
    for (const Mark& mark : marks_) {
        if (mark.answered != 0 && forget(mark.answered)) rows_.add(kEraseMark).bind(mark.answered);
        forget(mark.request);
        const uint64_t row = rows_.add(kPutMark).bind(mark.request).bind(mark.node).bound_sum();
        done_[mark.request] = {mark.node, row};
        rows_.delta += row;
        rows_.bind(row);
    }
}

void Catalog::gather(Node& node) {
    node.unrecorded = false;
    std::string more = encode_more(node, device_numbers_);
    rows_.add(kPutNode).bind(node.id).bind(uint32_t{static_cast<uint8_t>(node.kind)}).bind(uint32_t{node.mode});
    rows_.bind(node.uid).bind(node.gid);
    rows_.bind(node.created_ns).bind(node.accessed_ns).bind(node.modified_ns).bind(node.changed_ns);
    if (node.first_link.parent == nullptr) rows_.bind_null().bind_null().bind_blob(node.first_link.name);
    else rows_.bind(node.first_link.parent->id).bind(node.first_link.cookie).bind_blob(node.first_link.name);
    if (node.kind == NodeKind::object) {
        const auto& object = static_cast<const Object&>(node);
        rows_.bind(device_numbers_[object.device]).bind(uint32_t{static_cast<uint8_t>(object.state)});
        rows_.bind(object.flags).bind(object.size_bytes);
        rows_.bind(object.extent == nullptr ? 0 : object.extent->key).bind(object.offset).bind(object.creator);
        rows_.bind(object.file_modified_ns).bind(object.file_accessed_ns);
    } else {
        const auto* directory = node.kind == NodeKind::directory ? static_cast<const Directory*>(&node) : nullptr;
        if (directory != nullptr && directory->device) rows_.bind(device_numbers_[*directory->device]);
        else rows_.bind_null();
        for (int i = 0; i < 8; ++i) rows_.bind_null();
    }
    bool implicit = node.kind == NodeKind::directory && static_cast<const Directory&>(node).implicit;
    rows_.bind(uint32_t{implicit});
    if (node.kind == NodeKind::symlink) rows_.bind_blob(static_cast<const Symlink&>(node).target);
    else rows_.bind_null_blob();
    if (node.kind == NodeKind::special) {
        rows_.bind(static_cast<const Special&>(node).type).bind(static_cast<const Special&>(node).number);
    } else {
        rows_.bind_null().bind_null();
    }
    if (more.empty()) rows_.bind_null_blob();
    else rows_.bind_blob(more);
    const uint64_t row = rows_.bound_sum();
    rows_.delta += row - node.row_sum;
    node.row_sum = row;
    rows_.bind(row);
}

void Catalog::gather(StoredExtent& extent) {
    extent.unrecorded = false;
    rows_.add(kPutExtent).bind(extent.key).bind(extent.id).bind(device_numbers_[extent.device]);
    rows_.bind(extent.memory->size()).bind(extent.shown_bytes).bind(uint32_t{extent.compressible});
    rows_.bind(uint32_t{extent.memory->file() != nullptr});
    rows_.bind(uint32_t{extent.slab_group != nullptr}).bind(uint32_t{extent.closed});
    if (extent.slab_group == nullptr) {
        rows_.bind_null().bind_null().bind_null().bind_null_blob();
    } else {
        const SlabKey& key = extent.slab_group->key;
        rows_.bind(key.uid).bind(key.gid).bind(uint32_t{key.mode}).bind_blob(key.reach);
    }
    rows_.bind(uint32_t{!extent.lost_at_end}).bind(uint32_t{extent.handle_given});
    std::string_view handle_bytes;
    if (const FabricHandle* handle = extent.memory->lasting_handle()) {
        handle_bytes = {reinterpret_cast<const char*>(handle->data()), handle->size()};
    }
    rows_.bind_blob(handle_bytes);
    const uint64_t row = rows_.bound_sum();
    rows_.delta += row - extent.row_sum;
    extent.row_sum = row;
    rows_.bind(row);
}

}  // namespace gshm::core
