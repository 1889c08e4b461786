#include "catalog/catalog.h"

#include <algorithm>

#include "catalog/encoding.h"

namespace gshm {
namespace {

constexpr int kSchema = 1;

// Written to the kernel and not to the disk: the catalog ends with the machine's run, as the memory does.
constexpr const char* kSetUp = R"(
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA temp_store = MEMORY;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (number INTEGER PRIMARY KEY, name TEXT, uuid TEXT);
CREATE TABLE IF NOT EXISTS extents (
  key INTEGER PRIMARY KEY, id INTEGER, device INTEGER, size INTEGER, shown INTEGER, compressible INTEGER, file INTEGER,
  slab INTEGER, closed INTEGER, uid INTEGER, gid INTEGER, mode INTEGER, reach BLOB);
CREATE TABLE IF NOT EXISTS nodes (
  id INTEGER PRIMARY KEY, kind INTEGER, mode INTEGER, uid INTEGER, gid INTEGER,
  created INTEGER, accessed INTEGER, modified INTEGER, changed INTEGER,
  parent INTEGER, cookie INTEGER, name BLOB,
  device INTEGER, state INTEGER, flags INTEGER, size INTEGER, extent INTEGER, offset INTEGER, creator INTEGER,
  file_modified INTEGER, file_accessed INTEGER, implicit INTEGER, target BLOB, type INTEGER, number INTEGER, more BLOB);
CREATE TABLE IF NOT EXISTS done (request INTEGER PRIMARY KEY, node INTEGER);
)";

// Marks of requests whose answers the kernel has had; see done().
constexpr int kMostDone = 4096;

}  // namespace

std::vector<std::string> Catalog::files(const std::string& path) {
    return {path, path + "-wal", path + "-shm", path + "-journal"};
}

Result<std::unique_ptr<Catalog>> Catalog::create(const std::string& path) {
    std::unique_ptr<Catalog> catalog(new Catalog(TRY(Database::open(path))));
    TRY(catalog->prepare());
    return catalog;
}

Status Catalog::prepare() {
    auto version = TRY(database_.prepare("PRAGMA user_version"));
    int64_t found = 0;
    TRY(version.each([&] { found = version.number(0); }));
    if (found > kSchema) return fail(EPROTO, "the catalog is of a newer gshmd (format {}, known is {})", found, kSchema);
    TRY(database_.execute(kSetUp));
    TRY(database_.execute(fmt::format("PRAGMA user_version = {}", kSchema).c_str()));
    begin_ = TRY(database_.prepare("BEGIN"));
    commit_ = TRY(database_.prepare("COMMIT"));
    rollback_ = TRY(database_.prepare("ROLLBACK"));
    get_value_ = TRY(database_.prepare("SELECT value FROM meta WHERE key = ?"));
    put_value_ = TRY(database_.prepare("INSERT OR REPLACE INTO meta VALUES (?, ?)"));
    put_node_ = TRY(database_.prepare(
        "INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    erase_node_ = TRY(database_.prepare("DELETE FROM nodes WHERE id = ?"));
    put_extent_ = TRY(database_.prepare("INSERT OR REPLACE INTO extents VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    erase_extent_ = TRY(database_.prepare("DELETE FROM extents WHERE key = ?"));
    put_mark_ = TRY(database_.prepare("INSERT OR REPLACE INTO done VALUES (?, ?)"));
    erase_mark_ = TRY(database_.prepare("DELETE FROM done WHERE request = ?"));
    return {};
}

// ---- single values ----

Result<std::optional<std::string>> Catalog::value(std::string_view key) {
    std::optional<std::string> found;
    get_value_.bind_blob(key);
    TRY(get_value_.each([&] { found = std::string(get_value_.blob(0)); }));
    return found;
}

Status Catalog::set_value(std::string_view key, std::string_view value) {
    return put_value_.bind_blob(key).bind_blob(value).run();
}

// ---- what is there ----

Result<std::vector<std::string>> Catalog::use_devices(const std::vector<DeviceInfo>& devices) {
    struct Row {
        int64_t number;
        std::string name;
        std::string uuid;
    };
    std::vector<Row> rows;
    auto read = TRY(database_.prepare("SELECT number, name, uuid FROM devices"));
    TRY(read.each([&] { rows.push_back({read.number(0), std::string(read.blob(1)), std::string(read.blob(2))}); }));
    int64_t next = 1;
    for (const auto& row : rows) next = std::max(next, row.number + 1);
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        // A GPU is its UUID, whatever its ordinal is now.
        auto known = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
            return devices[i].uuid.empty() ? row.name == devices[i].name : row.uuid == devices[i].uuid;
        });
        int64_t number = known == rows.end() ? next++ : known->number;
        if (known == rows.end()) {
            auto add = TRY(database_.prepare("INSERT INTO devices VALUES (?, ?, ?)"));
            TRY(add.bind(number).bind_blob(devices[i].name).bind_blob(devices[i].uuid).run());
        } else {
            rows.erase(known);
        }
        device_numbers_.push_back(number);
        device_indexes_[number] = i;
    }
    std::vector<std::string> missing;
    for (const auto& row : rows) {
        auto count = TRY(database_.prepare("SELECT count(*) FROM extents WHERE device = ?"));
        int64_t extents = 0;
        count.bind(row.number);
        TRY(count.each([&] { extents = count.number(0); }));
        if (extents > 0) missing.push_back(row.uuid.empty() ? row.name : fmt::format("{} ({})", row.name, row.uuid));
    }
    return missing;
}

Status Catalog::load_extents(Restorer& restorer, const Take& take) {
    auto read = TRY(database_.prepare("SELECT * FROM extents"));
    Status good;
    TRY(read.each([&] {
        if (!good) return;
        Kept kept;
        kept.key = read.unsigned_number(0);
        kept.device = device_indexes_[read.number(2)];
        kept.size_bytes = read.unsigned_number(3);
        kept.compressible = read.number(5) != 0;
        kept.is_file = read.number(6) != 0;
        SavedExtent extent;
        extent.key = kept.key;
        extent.id = read.unsigned_number(1);
        extent.device = kept.device;
        extent.shown_bytes = read.unsigned_number(4);
        extent.compressible = kept.compressible;
        extent.closed = read.number(8) != 0;
        if (read.number(7) != 0) {
            extent.slab = SlabKey{kept.device, static_cast<uid_t>(read.number(9)), static_cast<gid_t>(read.number(10)),
                                  static_cast<uint16_t>(read.number(11)), kept.compressible, std::string(read.blob(12))};
        }
        auto memory = take(kept);
        if (!memory) good = std::unexpected(memory.error());
        if (!memory || *memory == nullptr) return;
        extent.memory = std::move(*memory);
        restorer.add(std::move(extent));
    }));
    return good;
}

Status Catalog::load_nodes(Restorer& restorer) {
    auto read = TRY(database_.prepare("SELECT * FROM nodes"));
    Status good;
    TRY(read.each([&] {
        SavedNode node;
        node.id = read.unsigned_number(0);
        node.kind = static_cast<NodeKind>(read.number(1));
        node.mode = static_cast<uint16_t>(read.number(2));
        node.uid = static_cast<uid_t>(read.number(3));
        node.gid = static_cast<gid_t>(read.number(4));
        node.created_ns = read.number(5);
        node.accessed_ns = read.number(6);
        node.modified_ns = read.number(7);
        node.changed_ns = read.number(8);
        if (!read.is_null(9)) {
            node.links.push_back({read.unsigned_number(9), read.unsigned_number(10), std::string(read.blob(11))});
        } else {
            node.last_name = read.blob(11);
        }
        if (!read.is_null(12)) node.device = device_indexes_[read.number(12)];
        node.state = static_cast<ObjectState>(read.number(13));
        node.flags = static_cast<uint32_t>(read.number(14));
        node.size_bytes = read.unsigned_number(15);
        node.extent = read.unsigned_number(16);
        node.offset = read.unsigned_number(17);
        node.creator = read.unsigned_number(18);
        node.file_modified_ns = read.number(19);
        node.file_accessed_ns = read.number(20);
        node.implicit = read.number(21) != 0;
        node.target = read.blob(22);
        node.type = static_cast<uint32_t>(read.number(23));
        node.number = static_cast<uint32_t>(read.number(24));
        auto decoded = decode_more(read.blob(25), node);
        if (!decoded) good = decoded;
        restorer.add(node);
    }));
    return good;
}

// ---- changes ----

void Catalog::erased(const Node& node) {
    nodes_.erase(node.id);
    erased_nodes_.push_back(node.id);
}

void Catalog::erased(const StoredExtent& extent) {
    extents_.erase(extent.key);
    erased_extents_.push_back(extent.key);
}

void Catalog::mark_done(uint64_t request, NodeId node, uint64_t answered) {
    marks_.push_back({request, node, answered});
}

Result<std::unordered_map<uint64_t, NodeId>> Catalog::done() {
    std::unordered_map<uint64_t, NodeId> found;
    auto read = TRY(database_.prepare("SELECT request, node FROM done"));
    TRY(read.each([&] { found.emplace(read.unsigned_number(0), read.unsigned_number(1)); }));
    // Most were answered before the daemon went, and are of no use. The kernel counts its requests up.
    (void)database_.execute(fmt::format("DELETE FROM done WHERE request NOT IN (SELECT request FROM done ORDER BY "
                                        "request DESC LIMIT {})", kMostDone).c_str());
    return found;
}

Status Catalog::forget_done() {
    marks_.clear();
    return database_.execute("DELETE FROM done");
}

Status Catalog::commit() {
    if (!is_pending()) return {};
    if (database_.is_in_transaction()) TRY(rollback_.run());  // of a commit that could not even be given up
    TRY(begin_.run());
    auto written = write_all();
    if (written) written = commit_.run();
    if (!written) {
        (void)rollback_.run();
        return written;
    }
    for (auto& [id, node] : nodes_) node->unrecorded = false;
    for (auto& [key, extent] : extents_) extent->unrecorded = false;
    nodes_.clear();
    extents_.clear();
    erased_nodes_.clear();
    erased_extents_.clear();
    marks_.clear();
    return {};
}

Status Catalog::write_all() {
    for (NodeId id : erased_nodes_) TRY(erase_node_.bind(id).run());
    for (uint64_t key : erased_extents_) TRY(erase_extent_.bind(key).run());
    for (const auto& [key, extent] : extents_) TRY(write(*extent));
    for (const auto& [id, node] : nodes_) TRY(write(*node));
    for (const Mark& mark : marks_) {
        if (mark.answered != 0) TRY(erase_mark_.bind(mark.answered).run());
        TRY(put_mark_.bind(mark.request).bind(mark.node).run());
    }
    return {};
}

Status Catalog::write(const Node& node) {
    std::string more = encode_more(node);
    put_node_.bind(node.id).bind(uint32_t{static_cast<uint8_t>(node.kind)}).bind(uint32_t{node.mode});
    put_node_.bind(node.uid).bind(node.gid);
    put_node_.bind(node.created_ns).bind(node.accessed_ns).bind(node.modified_ns).bind(node.changed_ns);
    if (node.first_link.parent == nullptr) put_node_.bind_null().bind_null().bind_blob(node.first_link.name);
    else put_node_.bind(node.first_link.parent->id).bind(node.first_link.cookie).bind_blob(node.first_link.name);
    if (node.kind == NodeKind::object) {
        const auto& object = static_cast<const Object&>(node);
        put_node_.bind(device_numbers_[object.device]).bind(uint32_t{static_cast<uint8_t>(object.state)});
        put_node_.bind(object.flags).bind(object.size_bytes);
        put_node_.bind(object.extent == nullptr ? 0 : object.extent->key).bind(object.offset).bind(object.creator);
        put_node_.bind(object.file_modified_ns).bind(object.file_accessed_ns);
    } else {
        const auto* directory =
            node.kind == NodeKind::directory ? static_cast<const Directory*>(&node) : nullptr;
        if (directory != nullptr && directory->device) put_node_.bind(device_numbers_[*directory->device]);
        else put_node_.bind_null();
        for (int i = 0; i < 8; ++i) put_node_.bind_null();
    }
    bool implicit = node.kind == NodeKind::directory && static_cast<const Directory&>(node).implicit;
    put_node_.bind(uint32_t{implicit});
    if (node.kind == NodeKind::symlink) put_node_.bind_blob(static_cast<const Symlink&>(node).target);
    else put_node_.bind_null();
    if (node.kind == NodeKind::special) {
        put_node_.bind(static_cast<const Special&>(node).type).bind(static_cast<const Special&>(node).number);
    } else {
        put_node_.bind_null().bind_null();
    }
    if (more.empty()) put_node_.bind_null();
    else put_node_.bind_blob(more);
    return put_node_.run();
}

Status Catalog::write(const StoredExtent& extent) {
    put_extent_.bind(extent.key).bind(extent.id).bind(device_numbers_[extent.device]);
    put_extent_.bind(extent.memory->size()).bind(extent.shown_bytes).bind(uint32_t{extent.compressible});
    put_extent_.bind(uint32_t{extent.memory->file() != nullptr});
    put_extent_.bind(uint32_t{extent.pool != nullptr}).bind(uint32_t{extent.closed});
    if (extent.pool == nullptr) {
        put_extent_.bind_null().bind_null().bind_null().bind_null();
    } else {
        const SlabKey& key = extent.pool->key;
        put_extent_.bind(key.uid).bind(key.gid).bind(uint32_t{key.mode}).bind_blob(key.reach);
    }
    return put_extent_.run();
}

}  // namespace gshm
